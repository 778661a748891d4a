"""What a joint trajectory controller does with its commands: interpolate, refuse nonsense, hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


class TrajectoryFollower:
    """The desired positions of one group of joints, as a function of time.

    A new trajectory starts from what is desired at that moment, not from where the joints are: a stream of short
    trajectories then moves smoothly. At its end the last point is held.
    """

    def __init__(self, names: Sequence[str], positions: ArrayLike, now_ns: int = 0) -> None:
        self.names = tuple(names)
        self.accepted = 0
        self.commanded_ns = now_ns
        self.reset(positions, now_ns)

    def reset(self, positions: ArrayLike, now_ns: int) -> None:
        """Desire ``positions`` from now on, whatever was commanded before."""
        held = np.array(positions, np.float64)
        if held.shape != (len(self.names),):
            raise ValueError(f"{len(self.names)} joints need as many positions, got {held.shape}")
        self._times = np.array([float(now_ns)])
        self._points = held[None]

    def command(
        self, names: Sequence[str], points: ArrayLike, times_ns: Sequence[int], now_ns: int, start_ns: int = 0
    ) -> None:
        """Follow ``points`` (N, J), each to be reached its ``times_ns`` after the start.

        Args:
            names: the J joints of this group, in any order.
            points: positions, rad or metres.
            times_ns: growing, the first above 0.
            now_ns: the time now.
            start_ns: when the trajectory starts; 0: now.

        Raises:
            ValueError: other joints than this group's, not a finite number, times that do not grow, or an end that
                is past; what was desired before stays desired.
        """
        self._check_names(names)
        wanted = np.asarray(points, np.float64)
        if wanted.ndim != 2 or wanted.shape != (len(times_ns), len(names)) or not len(times_ns):
            raise ValueError(f"{len(names)} joints and {len(times_ns)} times do not fit positions {wanted.shape}")
        for name, column in zip(names, wanted.T, strict=True):
            if not np.isfinite(column).all():
                raise ValueError(f"joint '{name}' is told to go to {column[~np.isfinite(column)][0]}")
        if times_ns[0] <= 0 or any(b <= a for a, b in zip(times_ns, times_ns[1:], strict=False)):
            raise ValueError("time_from_start must be above 0 and grow from point to point")
        begin = start_ns or now_ns
        if begin + times_ns[-1] <= now_ns:
            raise ValueError("the trajectory's end is past; leave its header's stamp at 0 to start on arrival")
        order = [list(names).index(name) for name in self.names]
        desired = self.desired(now_ns)
        self._times = np.array([now_ns, *(begin + time for time in times_ns)], np.float64)
        self._points = np.concatenate([desired[None], wanted[:, order]])
        ahead = np.concatenate([[True], self._times[1:] > now_ns])
        self._times, self._points = self._times[ahead], self._points[ahead]
        self.accepted += 1
        self.commanded_ns = now_ns

    def desired(self, now_ns: int) -> NDArray[np.float64]:
        """(J,) positions to drive to now, in ``names`` order."""
        return np.array([np.interp(now_ns, self._times, column) for column in self._points.T])

    def _check_names(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in self.names]
        missing = [name for name in self.names if name not in names]
        if unknown or missing or len(names) != len(self.names):
            what = f"no joint '{unknown[0]}' here" if unknown else f"joint '{missing[0]}' is missing" if missing else ""
            raise ValueError(f"{what or 'a joint is named twice'}; expected: {', '.join(self.names)}")
