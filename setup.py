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
    package_data={PACKAGE: ["weights/*/*"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]),
        (f"share/{PACKAGE}", ["package.xml"]),
        (f"share/{PACKAGE}/launch", files("launch/*.launch.py")),
        (f"share/{PACKAGE}/config", files("config/*.*")),
        (f"share/{PACKAGE}/config/rig", files("config/rig/*.yaml")),
        (f"share/{PACKAGE}/config/splits", files("config/splits/*.yaml")),
        (f"share/{PACKAGE}/config/train", files("config/train/*.yaml")),
        (f"share/{PACKAGE}/urdf", files("urdf/*.*")),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    maintainer="vag_policy maintainers",
    maintainer_email="maintainers@vag-policy.dev",
    description="Video-action policies with Temporal-Ratio guidance for bimanual arms, on ROS 2.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            "vag = vag_policy.entry:vag",
            "camera_sync_node = vag_policy.entry:camera_sync_node",
            "policy_node = vag_policy.entry:policy_node",
            "tr_monitor_node = vag_policy.entry:tr_monitor_node",
            "joint_command_node = vag_policy.entry:joint_command_node",
            "recorder_node = vag_policy.entry:recorder_node",
            "yam_sim_node = vag_policy.entry:yam_sim_node",
        ],
    },
)
