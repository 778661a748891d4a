"""What the nodes of a graph log on their way to being ready, and what a person who waits for them is told."""

from __future__ import annotations

from collections.abc import Sequence

SECOND_NS = 1_000_000_000

# What nodes log, word for word. LOADING is followed by what is loaded.
LOADING, UNTRAINED = "loading ", "random weights"
ACTIVE = "active: waiting for an instruction"
OBSERVING = "the first observation is out"
HEARD = "every joint is heard"
ARMED = "armed at the start"

_NEEDED = {
    ("policy", ACTIVE): "the policy",
    ("camera_sync", OBSERVING): "observations (cameras and joints together)",
    ("joint_command", HEARD): "the position of every joint",
}
_FIRST_REMINDER_NS = 15 * SECOND_NS


class Milestones:
    """Turns log lines into sentences with the time since the start.

    Args:
        start_ns: when the graph was started, on the clock of all times here.
        task: a command line that gives the policy a task.
        arm: a command line that arms the arms.
    """

    def __init__(self, start_ns: int, task: str, arm: str) -> None:
        self._start_ns = start_ns
        self._task, self._arm = task, arm
        self._missing = dict(_NEEDED)
        self._weights = ""
        self._armed = False
        self._ready = False
        self._remind_ns = start_ns + _FIRST_REMINDER_NS

    @property
    def loading(self) -> bool:
        """Whether the policy has not become active yet."""
        return ("policy", ACTIVE) in self._missing

    def new(self, lines: Sequence[tuple[str, str]], now_ns: int) -> list[str]:
        """What to say after ``lines``, (node, what it logged) each, at ``now_ns``."""
        was_loading = self.loading
        said = [text for node, line in lines if (text := self._hear(node, line))]
        if was_loading and not self.loading and self._missing:
            said.append(f"the policy is loaded; still waiting for {', '.join(self._missing.values())}")
        if self._missing and now_ns >= self._remind_ns:
            self._remind_ns += self._remind_ns - self._start_ns
            said.append(f"still waiting for {', '.join(self._missing.values())}")
        if not self._missing and not self._ready:
            self._ready = True
            said += self._what_now()
        return [f"{(now_ns - self._start_ns) / SECOND_NS:5.1f} s: {text}" for text in said]

    def _hear(self, node: str, line: str) -> str:
        self._missing.pop((node, line), None)
        self._armed |= (node, line) == ("joint_command", ARMED)
        if node == "policy" and line.startswith(LOADING):
            self._weights = line.removeprefix(LOADING)
            return f"the policy is loading {self._weights} ..."
        return ""

    def _what_now(self) -> list[str]:
        weights = f" with {self._weights}" if self._weights else ""
        skill = " (untrained: everything is real but the skill)" if self._weights.startswith(UNTRAINED) else ""
        said = [f"ready{weights}{skill}"]
        if not self._armed:
            said.append(f"the arms are disarmed; in another shell, this lets them move: {self._arm}")
        said.append(f"publish an instruction or type, in another shell: {self._task}")
        return said
