"""Print a requirements file adapted to the NumPy that an installed ROS 2 was compiled against.

Usage: apt_requirements.py REQUIREMENTS. Where the system's NumPy is 1.x, a NumPy 2 in the virtual
environment would crash the distribution's message packages at import: NumPy stays the system's, and
OpenCV (whose 5.x wheels need NumPy 2) the last that accepts NumPy 1.
"""

import sys
from pathlib import Path

import numpy

NUMPY_1 = {"numpy": f"numpy=={numpy.__version__}", "opencv-python-headless": "opencv-python-headless==4.11.0.86"}
FREE_ON_NUMPY_1 = ("matplotlib", "rosbags")  # their pinned releases may want NumPy 2

for line in Path(sys.argv[1]).read_text().splitlines():
    name = line.partition("==")[0].strip()
    if int(numpy.__version__.split(".")[0]) < 2:
        if name in NUMPY_1:
            line = NUMPY_1[name]
        elif name in FREE_ON_NUMPY_1:
            line = name
    print(line)
