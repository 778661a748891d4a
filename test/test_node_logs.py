"""What nodes complain about, read from their output."""

from vag_policy.node_logs import LogTail, LogTails, last_words

SECOND = 1_000_000_000


def line(severity: str, text: str) -> str:
    return f"[{severity}] [1796069058.076405046] [some.logger]: {text}\n"


def test_warnings_and_errors_come_once_with_the_node_s_name(tmp_path):
    logs = {name: tmp_path / f"{name}.log" for name in ("policy", "camera_sync")}
    tails = LogTails(logs)
    assert tails.new(0) == [], "the files are not there yet"
    logs["policy"].write_text(line("INFO", "fine") + line("WARN", "hm") + "plain text [ERROR] [\n")
    logs["camera_sync"].write_text(line("ERROR", "top is silent") + line("FATAL", "no"))
    assert tails.new(1) == ["policy: WARN: hm", "camera_sync: ERROR: top is silent", "camera_sync: FATAL: no"]
    assert tails.new(2) == []


def test_information_is_kept_apart(tmp_path):
    logs = {name: tmp_path / f"{name}.log" for name in ("policy", "camera_sync")}
    tails = LogTails(logs)
    logs["policy"].write_text(
        line("INFO", "loading") + line("WARN", "hm") + line("DEBUG", "x") + line("INFO", "active")
    )
    logs["camera_sync"].write_text(line("INFO", "fine"))
    assert tails.news() == [], "not read yet"
    assert tails.new(0) == ["policy: WARN: hm"]
    assert tails.news() == [("policy", "loading"), ("policy", "active"), ("camera_sync", "fine")]
    assert tails.new(1) == tails.news() == []


def test_a_line_that_is_still_being_written_waits_for_its_end(tmp_path):
    path = tmp_path / "log"
    tail = LogTail("policy", path)
    whole = line("WARN", "half a line, µ")
    path.write_bytes(whole.encode()[:-2])
    assert list(tail.new(0)) == []
    path.write_bytes(whole.encode())
    assert list(tail.new(1)) == ["policy: WARN: half a line, µ"]


def test_a_flood_is_counted(tmp_path):
    path = tmp_path / "log"
    path.write_text("".join(line("WARN", str(i)) for i in range(40)))
    tail = LogTail("policy", path, burst=3)
    assert list(tail.new(0)) == ["policy: WARN: 0", "policy: WARN: 1", "policy: WARN: 2"]
    with path.open("a") as file:
        file.write(line("ERROR", "still"))
    assert list(tail.new(SECOND // 2)) == []
    assert list(tail.new(SECOND)) == [f"policy: 38 more warnings or errors, see {path}"]
    with path.open("a") as file:
        file.write(line("ERROR", "again"))
    assert list(tail.new(2 * SECOND)) == ["policy: ERROR: again"]


def test_why_a_node_ended_is_its_fatal_line_or_its_last_lines():
    assert last_words(line("WARN", "a") + line("FATAL", "no such preset") + line("INFO", "b")) == "no such preset"
    trace = "Traceback (most recent call last):\n" + "".join(f"  File {i}\n" for i in range(30)) + "KeyError: 'x'\n"
    words = last_words(trace)
    assert "KeyError: 'x'" in words and "File 0" not in words
