"""Which OpenGL a headless simulator renders with. Import nothing of MuJoCo or robosuite before ``choose``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import MutableMapping

HELP = (
    "no headless OpenGL: neither EGL (libEGL.so.1 with a driver) nor OSMesa (libOSMesa.so.8) works here; install one "
    "with: sudo apt-get install -y libegl1 libgl1-mesa-dri, or: sudo apt-get install -y libosmesa6"
)
_EGL_EXTENSIONS, _EGL_DEVICE = 0x3055, 0x313F


def choose(environ: MutableMapping[str, str] = os.environ) -> str:
    """Set MUJOCO_GL to ``egl`` where EGL has a device, else to ``osmesa``, and return it; a set one stays.

    Where there is neither it becomes ``disable``: physics runs, and a ``Renderer`` says what to install. MuJoCo reads
    the variable once, at import, and PyOpenGL cannot change its platform afterwards: so the library is asked here, by
    itself, instead of trying one renderer after the other.
    """
    if not environ.get("MUJOCO_GL"):
        if _egl_works():
            environ["MUJOCO_GL"] = "egl"
        elif _loads("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"):
            environ["MUJOCO_GL"] = "osmesa"
        else:
            environ["MUJOCO_GL"] = "disable"
    return environ["MUJOCO_GL"]


def _loads(*names: str) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _egl_works() -> bool:
    """Whether EGL can make a display without a window system, from a device of its own."""
    egl = _loads("libEGL.so.1", "libEGL.so")
    if egl is None:
        return False
    egl.eglQueryString.restype = ctypes.c_char_p
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    extensions = (egl.eglQueryString(None, _EGL_EXTENSIONS) or b"").split()
    query = egl.eglGetProcAddress(b"eglQueryDevicesEXT")
    display_of = egl.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if b"EGL_EXT_platform_device" not in extensions or not query or not display_of:
        return False
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_int()
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    if not prototype(query)(len(devices), ctypes.addressof(devices), ctypes.addressof(count)):
        return False
    get_display = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(display_of)
    displays = (get_display(_EGL_DEVICE, devices[index], None) for index in range(count.value))
    # Left initialised: terminating here would end the display that MuJoCo is about to share.
    return any(display and egl.eglInitialize(ctypes.c_void_p(display), None, None) for display in displays)
