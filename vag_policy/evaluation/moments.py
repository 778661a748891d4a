"""Which instants of an episode tell what happened in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from vag_policy.evaluation.episode_log import SECOND_NS, FrameSample, Story, TaskSample

_BEFORE_LIFTING_NS = SECOND_NS // 5
T = TypeVar("T", TaskSample, FrameSample)


@dataclass(frozen=True)
class Moment:
    """An instant: what happens, what the simulator said, and what the policy saw, which is of about the same time."""

    label: str
    task: TaskSample
    frame: FrameSample

    @property
    def stamp_ns(self) -> int:
        """When."""
        return self.task.stamp_ns


def moments(story: Story) -> list[Moment]:
    """Start, grasp, carry and end, in order of time; where there was no grasp or carry, an instant by its phase.

    Raises:
        ValueError: the policy saw no picture, or the simulator said nothing.
    """
    if not story.tasks or not story.frames:
        raise ValueError(f"nothing was seen of the episode '{story.attempt.instruction}'")
    first, last = story.attempt.start_ns, story.attempt.end_ns
    carried = _longest(story, "carry", last)
    carry = None if carried is None else sum(carried) // 2
    held = _longest(story, "grasp", last if carried is None else carried[0])
    if held is None:
        grasp = first + ((carry or last) - first) // (2 if carry else 3)
    else:
        grasp = max(held[0], held[1] - _BEFORE_LIFTING_NS)
    middle = carry or grasp + (last - grasp) // 2
    return [
        _moment(story, first, "start"),
        _moment(story, grasp, "grasp" if held else ""),
        _moment(story, middle, "carry" if carry else ""),
        _moment(story, last, "end"),
    ]


def _longest(story: Story, phase: str, until_ns: int) -> tuple[int, int] | None:
    """The longest stretch of ``phase`` that begins before ``until_ns``."""
    stretches = [(start, end) for name, start, end in story.phases() if name == phase and start < until_ns]
    return max(stretches, key=lambda stretch: stretch[1] - stretch[0], default=None)


def _moment(story: Story, stamp_ns: int, label: str) -> Moment:
    task = nearest(story.tasks, stamp_ns)
    return Moment(label or task.phase, task, nearest(story.frames, task.stamp_ns))


def nearest(samples: Sequence[T], stamp_ns: int) -> T:
    """The sample that is closest in time."""
    return min(samples, key=lambda sample: abs(sample.stamp_ns - stamp_ns))
