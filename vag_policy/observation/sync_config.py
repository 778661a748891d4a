"""What the synchroniser matches, and how strictly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vag_policy.observation.observation import JOINT_SOURCE

_MS = 1_000_000


@dataclass(frozen=True)
class SyncConfig:
    """What is matched, and how strictly.

    Attributes:
        cameras: names, in stacking order.
        reference: the camera whose stamps the others are matched to.
        joints: names, in the order of ``Match.positions``.
        slop_ns: a source may be this far from the reference stamp, inclusive, either way.
        max_age_ns: a source may be this old by the clock when it is matched, inclusive; by camera name and
            ``JOINT_SOURCE``; those left out get ``default_max_age_ns``.
        default_max_age_ns: see ``max_age_ns``.
        max_wait_ns: a reference frame waits this long for its partners (steady clock).
        period_ns: distance of two matches; 0 matches every reference frame.
        frozen_ns: a camera with new stamps but the same content for this long is refused; 0 does not look.
        jump_back_ns: a stamp this much older than its stream's newest is a jump (a bag that loops, a simulator
            that is reset), inclusive; a smaller step back is a late message.
        max_ahead_ns: a stamp this much ahead of the clock is another clock's: the message is dropped.
        frames: kept of each camera.
        joint_messages: kept of each joint-state publisher.
    """

    cameras: tuple[str, ...]
    reference: str
    joints: tuple[str, ...]
    slop_ns: int = 50 * _MS
    max_age_ns: Mapping[str, int] = field(default_factory=dict)
    default_max_age_ns: int = 300 * _MS
    max_wait_ns: int = 20 * _MS
    period_ns: int = 0
    frozen_ns: int = 0
    jump_back_ns: int = 100 * _MS
    max_ahead_ns: int = 1000 * _MS
    frames: int = 16
    joint_messages: int = 256

    def __post_init__(self) -> None:
        for what, names in (("camera", self.cameras), ("joint", self.joints)):
            if not names or not all(names):
                raise ValueError(f"at least one {what} is needed, and none without a name; got {list(names)}")
            doubled = sorted({name for name in names if names.count(name) > 1})
            if doubled:
                raise ValueError(f"{what} {', '.join(doubled)} is named more than once in {', '.join(names)}")
        if JOINT_SOURCE in self.cameras:
            raise ValueError(f"no camera can be called '{JOINT_SOURCE}'")
        if self.reference not in self.cameras:
            raise ValueError(f"reference '{self.reference}' is not a camera; cameras: {', '.join(self.cameras)}")
        sources = (*self.cameras, JOINT_SOURCE)
        unknown = sorted(set(self.max_age_ns) - set(sources))
        if unknown:
            raise ValueError(f"max_age_ns names {', '.join(unknown)}; sources: {', '.join(sources)}")
        for name in ("slop_ns", "default_max_age_ns", "max_wait_ns", "period_ns", "frozen_ns"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("jump_back_ns", "max_ahead_ns", "frames", "joint_messages"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name, age in self.max_age_ns.items():
            if age < 1:
                raise ValueError(f"max_age_ns of {name} must be positive, got {age}")

    def age_limit(self, source: str) -> int:
        """The maximum age of a camera or of ``JOINT_SOURCE``, nanoseconds."""
        return self.max_age_ns.get(source, self.default_max_age_ns)
