"""Point the CMake exports of the PyPI ROS 2 wheels at this environment.

The exports name the Python and NumPy include folders of the machine that built the wheels. Run with the
environment's own python after every install; running it again changes nothing. A changed file is written
anew and renamed, because installers may hard-link installed files to their cache.
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy


def repoint(prefix: Path) -> int:
    """Rewrite every rosidl_generator_py export below ``prefix``; return how many files changed."""
    python_include, numpy_include = sysconfig.get_paths()["include"], numpy.get_include()
    changed = 0
    for export in prefix.glob("share/*/cmake/*rosidl_generator_pyExport.cmake"):
        old = export.read_text()
        new = re.sub(r'[^;"\s]*/numpy/(?:_core|core)/include(?=[;"\s])', lambda _: numpy_include, old)
        new = re.sub(r'[^;"\s]*/include/python3\.\d+(?=[;"\s])', lambda _: python_include, new)
        if new != old:
            fresh = export.with_suffix(".new")
            fresh.write_text(new)
            fresh.replace(export)
            changed += 1
    return changed


if __name__ == "__main__":
    print(f"repointed {repoint(Path(sys.prefix))} CMake exports")
