"""Offscreen pictures of a MuJoCo model: one OpenGL context, one thread, one instant for all cameras."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable, Sequence

import mujoco
import numpy as np
from numpy.typing import NDArray

from vag_policy.robots import gl

# Left out so that software rendering keeps up with three cameras; the price is a flatter picture.
_FLAGS_OFF = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION, mujoco.mjtRndFlag.mjRND_HAZE)
_MAX_GEOMS = 400


class Renderer:
    """Renders named cameras at one size. Belongs to the thread that made it.

    Shadows, reflections and multisampling are off (``model.vis.quality`` decides on the last).

    Raises:
        RuntimeError: OpenGL cannot be had.
    """

    def __init__(self, model: mujoco.MjModel, cameras: Sequence[str], width: int, height: int) -> None:
        if not hasattr(mujoco, "GLContext"):  # MUJOCO_GL is "disable"
            raise RuntimeError(gl.HELP)
        self._thread = threading.get_ident()
        self._model = model
        self._rect = mujoco.MjrRect(0, 0, width, height)
        self._flipped = np.empty((height, width, 3), np.uint8)
        try:
            self._gl = mujoco.GLContext(width, height)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        except Exception as error:  # each backend raises its own kinds
            raise RuntimeError(f"cannot render without a display: {error}") from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        # A context that outlives the backend's own exit handler would be freed too late, with a traceback.
        self._at_exit = _closer(weakref.ref(self))
        atexit.register(self._at_exit)
        self._option = mujoco.MjvOption()
        self._views: dict[str, tuple[mujoco.MjvScene, mujoco.MjvCamera]] = {}
        for name in cameras:
            camera = mujoco.MjvCamera()
            camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
            camera.fixedcamid = model.camera(name).id
            scene = mujoco.MjvScene(model, _MAX_GEOMS)
            for flag in _FLAGS_OFF:
                scene.flags[flag] = 0
            self._views[name] = (scene, camera)

    def capture(self, data: mujoco.MjData, cameras: Sequence[str] = ()) -> None:
        """Freeze what ``cameras`` (default: all) see at this instant; ``draw`` pictures it, however much later."""
        self._check()
        for name in cameras or self._views:
            scene, camera = self._views[name]
            mujoco.mjv_updateScene(
                self._model, data, self._option, None, camera, mujoco.mjtCatBit.mjCAT_ALL.value, scene
            )

    def draw(self, camera: str) -> NDArray[np.uint8]:
        """(H, W, 3) RGB of what ``camera`` saw at the last ``capture``."""
        self._check()
        mujoco.mjr_render(self._rect, self._views[camera][0], self._context)
        mujoco.mjr_readPixels(self._flipped, None, self._rect, self._context)
        return np.ascontiguousarray(self._flipped[::-1])  # OpenGL's rows run upwards

    def close(self) -> None:
        """Give the OpenGL context back."""
        self._check()
        atexit.unregister(self._at_exit)
        self._context.free()
        self._gl.free()

    def _check(self) -> None:
        if threading.get_ident() != self._thread:
            # OpenGL would not complain: it would give black pictures.
            raise RuntimeError("a renderer may be used only by the thread that made it")


def _closer(reference: weakref.ref[Renderer]) -> Callable[[], None]:
    def close() -> None:
        renderer = reference()
        if renderer is not None:
            renderer.close()

    return close
