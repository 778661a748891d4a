"""Maps named values onto the rig's joints, whatever order a message lists them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

# Sources name their joints the same way in every message; more than this many ways is not a rig but noise.
_REMEMBERED = 32

# Names in messages may be many and long; a reason that repeats them is logged, and published over and over.
_SHOWN, _LONGEST = 20, 60

Indices = NDArray[np.intp]


def listed(names: Sequence[str]) -> str:
    """Names out of a message as text of bounded length: ``hand, foot and 3 more``."""
    shown = [name if len(name) <= _LONGEST else f"{name[:_LONGEST]}..." for name in names[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


class JointMap:
    """Looks names up once for every order of names seen.

    Args:
        names: the N joints, in the order used inside.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._index = {name: index for index, name in enumerate(self.names)}
        self._known: dict[tuple[str, ...], tuple[Indices, Indices]] = {}

    def find(self, names: Sequence[str]) -> tuple[Indices, Indices]:
        """Places ``source`` in ``names`` and ``joint`` inside of the rig's joints; other names are skipped.

        Raises:
            ValueError: a name appears twice.
        """
        key = tuple(names)
        found = self._known.get(key)
        if found is None:
            twice = sorted(name for name, count in Counter(key).items() if count > 1)
            if twice:
                raise ValueError(f"joint {listed(twice)} is named more than once")
            source = [place for place, name in enumerate(key) if name in self._index]
            found = np.array(source, np.intp), np.array([self._index[key[place]] for place in source], np.intp)
            if len(self._known) < _REMEMBERED:
                self._known[key] = found
        return found

    def unknown(self, names: Sequence[str]) -> list[str]:
        """The names that are no joint of the rig."""
        return [name for name in names if name not in self._index]

    def missing(self, names: Sequence[str]) -> list[str]:
        """The joints of the rig that are not among ``names``."""
        given = set(names)
        return [name for name in self.names if name not in given]
