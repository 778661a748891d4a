"""Recent images by stamp: a trace arrives when its image is long past."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Image = TypeVar("Image")


class ImageHistory(Generic[Image]):
    """The last ``size`` images."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._images: OrderedDict[int, Image] = OrderedDict()

    def add(self, stamp_ns: int, image: Image) -> None:
        """Keep an image; the oldest arrival goes. An older stamp than the last means that time went back: all go."""
        if self._images and stamp_ns < next(reversed(self._images)):
            self._images.clear()
        self._images[stamp_ns] = image
        if len(self._images) > self._size:
            self._images.popitem(last=False)

    def nearest(self, stamp_ns: int) -> tuple[int, Image] | None:
        """(stamp, image) nearest in time to ``stamp_ns``, or None where there is no image."""
        if not self._images:
            return None
        found = min(self._images, key=lambda stamp: abs(stamp - stamp_ns))
        return found, self._images[found]

    def clear(self) -> None:
        """Forget every image."""
        self._images.clear()
