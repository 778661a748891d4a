"""Which episodes are run, and that none is run twice."""

import json
from collections import Counter

import pytest

from vag_policy.bringup import share_directory
from vag_policy.data.splits import load_split
from vag_policy.evaluation.journal import FILE, Journal, read_journal
from vag_policy.evaluation.trials import to_show, trials

SPLIT = load_split(share_directory("config", "splits") / "yam_sim.yaml")
HEADER = {"checkpoint": "abc", "settings": {"policy": {"cameras": ("top",)}}}


@pytest.mark.parametrize("part", ["id", "ood"])
def test_instructions_are_balanced_and_no_scene_is_demonstrated_or_used_twice(part):
    chosen = trials(SPLIT, part, 100)
    counts = Counter(trial.instruction for trial in chosen)
    assert set(counts) == set(getattr(SPLIT, part)) and max(counts.values()) - min(counts.values()) <= 1
    seeds = [trial.seed for trial in chosen]
    low, high = SPLIT.seeds[part]
    assert len(set(seeds)) == 100 and low <= min(seeds) and max(seeds) <= high
    first, last = SPLIT.seeds["demonstrations"]
    assert not any(first <= seed <= last for seed in seeds)


def test_the_list_depends_on_nothing_but_what_was_asked():
    assert trials(SPLIT, "id", 100)[:30] == trials(SPLIT, "id", 30)
    later = trials(SPLIT, "id", 5, seed=30)
    assert [t.seed for t in later] == [t.seed for t in trials(SPLIT, "id", 35)[30:]]


def test_one_instruction_alone():
    told = {trial.instruction for trial in trials(SPLIT, "id", 4, instruction="Put the purple can in the wooden tray.")}
    assert told == {"put the purple can in the wooden tray"}
    with pytest.raises(ValueError, match="no task 'juggle'"):
        trials(SPLIT, "id", 4, instruction="juggle")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 30])
def test_what_is_shown_are_episodes_of_an_evaluation_of_both_kinds(count):
    shown = to_show(SPLIT, count, seed=5)
    parts = [part for part, _ in shown]
    assert len(shown) == count and parts == sorted(parts) and parts.count("ood") == count // 2
    evaluated = {part: trials(SPLIT, part, 40, seed=5) for part in ("id", "ood")}
    assert all(trial in evaluated[part] for part, trial in shown)
    assert len({trial.seed for _, trial in shown}) == count
    told = Counter(trial.instruction for part, trial in shown if part == "id")
    assert max(told.values()) == -(-parts.count("id") // len(SPLIT.id)), "as different as can be"


def test_four_that_are_shown_are_about_four_objects():
    told = [trial.instruction for _, trial in to_show(SPLIT, 4)]
    assert len({" ".join(text.split()[2:4]) for text in told}) == 4


@pytest.mark.parametrize(("told", "part"), [("in the blue bowl", "id"), ("on the green plate", "ood")])
def test_one_s_own_instruction_is_shown_in_scenes_of_its_kind(told, part):
    shown = to_show(SPLIT, 3, 2, f"Put the blue cube {told}.")
    assert [name for name, _ in shown] == [part] * 3
    assert {trial.instruction for _, trial in shown} == {f"put the blue cube {told}"}
    first = SPLIT.seeds[part][0]
    assert [trial.seed for _, trial in shown] == [first + 2, first + 3, first + 4]


def test_what_cannot_be_run_is_refused():
    with pytest.raises(ValueError, match="there are: id, ood"):
        trials(SPLIT, "demonstrations", 4)
    with pytest.raises(ValueError, match="may be up to 9000"):
        trials(SPLIT, "id", 100, seed=8950)


def test_a_journal_goes_on_where_it_was(tmp_path):
    with Journal(tmp_path, HEADER) as journal:
        journal.add({"index": 0, "success": True})
        journal.add({"index": 2, "success": False})
    with Journal(tmp_path, HEADER) as journal:
        assert set(journal.records) == {0, 2}
        journal.add({"index": 1, "success": True})
        with pytest.raises(ValueError, match="episode 1 is there already"):
            journal.add({"index": 1, "success": False})
    header, records = read_journal(tmp_path)
    assert header["checkpoint"] == "abc" and [record["index"] for record in records] == [0, 1, 2]


@pytest.mark.parametrize("cut", range(1, 20))
def test_a_line_cut_short_by_a_kill_never_counted(tmp_path, cut):
    with Journal(tmp_path, HEADER) as journal:
        journal.add({"index": 0, "success": True})
        journal.add({"index": 1, "success": True})
    path = tmp_path / FILE
    path.write_bytes(path.read_bytes()[:-cut])
    with Journal(tmp_path, HEADER) as journal:
        assert set(journal.records) == {0}
        journal.add({"index": 1, "success": False})
    assert [json.loads(line).get("success") for line in path.read_text().splitlines()] == [None, True, False]


def test_a_folder_of_another_policy_is_refused_by_name(tmp_path):
    with Journal(tmp_path, HEADER):
        pass
    with pytest.raises(ValueError, match="another checkpoint \\(abc, now def\\)"):
        Journal(tmp_path, {**HEADER, "checkpoint": "def"})
    with pytest.raises(ValueError, match="no evaluation in"):
        read_journal(tmp_path / "elsewhere")


def test_two_processes_cannot_write_one_journal(tmp_path):
    with Journal(tmp_path, HEADER), pytest.raises(ValueError, match="another process is writing"):
        Journal(tmp_path, HEADER)


def test_without_a_folder_nothing_is_written():
    with Journal(None, HEADER) as journal:
        journal.add({"index": 0})
        assert journal.records == {0: {"index": 0}}
