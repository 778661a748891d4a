"""Whether the arms' side has ended the policy's episode, and whether an instruction after that is a new one."""

from __future__ import annotations

HOME = "home"
PAUSE_NS = 2_000_000_000
"""A sender that repeats its message pauses for less: ``ros2 topic pub`` does it once a second."""
TOGETHER_NS = 50_000_000
"""What is asked for so soon after the policy heard of a move home was asked for at the same moment: home wins."""


class Repetition:
    """Tells an instruction that is given again from one whose sender merely repeats it."""

    def __init__(self) -> None:
        self._text, self._heard_ns = "", 0

    def seen(self, text: str, now_ns: int) -> bool:
        """Take in an instruction at ``now_ns`` (a steady clock); return whether it merely repeats the one before."""
        repeats = text == self._text and now_ns - self._heard_ns < PAUSE_NS
        self._text, self._heard_ns = text, now_ns
        return repeats


class EpisodeWatch:
    """Compares each status of joint_command with the one before.

    An operator who sends the arms home ends the episode. joint_command takes no more chunks of it, so a policy that
    went on would plan for nobody, and would take the same instruction, given again, for the one it follows already.

    A call of home and an instruction reach two processes, so which came first cannot be told within a few
    milliseconds: home wins, whichever the policy hears of first. One that comes later begins an episode whose first
    chunk that is taken was seen after the move home (``execution.admission`` drops those before).
    """

    def __init__(self) -> None:
        self._mode = ""
        self._episode = 0
        self._home_ns: int | None = None

    def home_wins(self, now_ns: int) -> bool:
        """Whether an instruction at ``now_ns`` (a steady clock) came together with a move home."""
        return self._home_ns is not None and now_ns - self._home_ns < TOGETHER_NS

    def ended(self, mode: str, episode: int, chunks: int, current: int, now_ns: int) -> bool:
        """Take in a status at ``now_ns``; return whether episode ``current``, the policy's, was ended by it.

        Args:
            mode: what the arms do.
            episode: that of the last chunk taken; 0: none, or it was ended.
            chunks: taken since the start; 0 tells a fresh start from an end.
            current: the policy's episode.
            now_ns: a steady clock.
        """
        sent_home = mode == HOME and self._mode != HOME
        if sent_home:
            self._home_ns = now_ns
        dropped = episode == 0 and chunks > 0 and self._episode == current
        self._mode, self._episode = mode, episode
        return sent_home or dropped
