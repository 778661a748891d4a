"""How one demonstration differs from the next: pace, noise, start, and mistakes made on purpose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MISTAKES = ("none", "miss_side", "miss_high", "drop")
STARTS = ("rest", "home", "working_home", "other_home")


@dataclass(frozen=True)
class Style:
    """One demonstration's manner.

    Attributes:
        pace: factor on the speed of the arm.
        noise: standard deviation (rad) of the noise on executed joints; 0: none.
        mistake: ``none``; ``miss_side`` or ``miss_high``: the first grasp closes beside or above the object; ``drop``:
            the object is let go just after the lift. What follows is the recovery.
        start: both arms at ``rest``, both at ``home``, or only the working or only the other arm at home: where an
            earlier instruction may have left them.
    """

    pace: float = 1.0
    noise: float = 0.0
    mistake: str = "none"
    start: str = "rest"

    def __post_init__(self) -> None:
        if not 0.3 <= self.pace <= 1.0:
            raise ValueError(f"pace is {self.pace}; allowed: 0.3 to 1")
        if not 0.0 <= self.noise <= 0.1:
            raise ValueError(f"noise is {self.noise} rad; allowed: 0 to 0.1")
        if self.mistake not in MISTAKES:
            raise ValueError(f"no mistake '{self.mistake}'; there are: {', '.join(MISTAKES)}")
        if self.start not in STARTS:
            raise ValueError(f"no start '{self.start}'; there are: {', '.join(STARTS)}")


@dataclass(frozen=True)
class Variety:
    """How often a demonstration has which manner.

    Attributes:
        noisy: share of demonstrations with noise.
        noise: (least, most) standard deviation, rad.
        misses: share whose first grasp misses.
        drops: share that lose the object once.
        elsewhere: share that do not start at rest.
        pace: (least, most).
    """

    noisy: float = 0.5
    noise: tuple[float, float] = (0.01, 0.05)
    misses: float = 0.25
    drops: float = 0.05
    elsewhere: float = 0.12
    pace: tuple[float, float] = (0.9, 1.0)

    def draw(self, rng: np.random.Generator) -> Style:
        """One demonstration's manner."""
        noise = rng.uniform(*self.noise) if rng.random() < self.noisy else 0.0
        chance = rng.random()
        mistake = "none"
        if chance < self.misses:
            mistake = str(rng.choice(("miss_side", "miss_high")))
        elif chance < self.misses + self.drops:
            mistake = "drop"
        start = str(rng.choice(STARTS[1:])) if rng.random() < self.elsewhere else "rest"
        return Style(float(rng.uniform(*self.pace)), float(noise), mistake, start)


PLAIN = Variety(noisy=0.0, misses=0.0, drops=0.0, elsewhere=0.0)
"""Every demonstration from rest, without noise or mistakes."""
