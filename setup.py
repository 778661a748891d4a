"""Build description of the vag_policy ament_python package."""

from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = "vag_policy"


def files(pattern):
    """Paths below the package root that match ``pattern``."""
    return sorted(str(path) for path in Path().glob(pattern))


setup(
    name=PACKAGE,
    version="0.1.0",
    packages=find_packages(include=[PACKAGE, f"{PACKAGE}.*"]),
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]),
        (f"share/{PACKAGE}", ["package.xml"]),
        (f"share/{PACKAGE}/launch", files("launch/*.launch.py")),
        (f"share/{PACKAGE}/config", files("config/*.*")),
        (f"share/{PACKAGE}/config/rig", files("config/rig/*.yaml")),
        (f"share/{PACKAGE}/config/splits", files("config/splits/*.yaml")),
        (f"share/{PACKAGE}/urdf", files("urdf/*.*")),
    ],
    install_requires=["setuptools"],
    zip_safe=True,
    maintainer="vag_policy maintainers",
    maintainer_email="maintainers@vag-policy.dev",
    description="Video-action policies with Temporal-Ratio guidance for bimanual arms, on ROS 2.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            "vag = vag_policy.cli:main",
            "camera_sync_node = vag_policy.nodes.camera_sync_node:main",
            "policy_node = vag_policy.nodes.policy_node:main",
            "tr_monitor_node = vag_policy.nodes.tr_monitor_node:main",
            "joint_command_node = vag_policy.nodes.joint_command_node:main",
            "recorder_node = vag_policy.nodes.recorder_node:main",
            "yam_sim_node = vag_policy.nodes.yam_sim_node:main",
        ],
    },
)
