"""The Fast DDS profiles: the same for both major versions, and read by the installed one."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import rclpy
from ros_process import claim_domain

CONFIG = Path(__file__).resolve().parent.parent / "config"
SPACE = "{http://www.eprosima.com}"
NANOSECONDS = f".//{SPACE}data_writer/{SPACE}times/{SPACE}%s/{SPACE}nanosec"


def test_lost_messages_are_repaired_before_an_emergency_stop_is_late():
    for file, name in (("fastdds.xml", "heartbeatPeriod"), ("fastdds3.xml", "heartbeat_period")):
        root = ElementTree.parse(CONFIG / file)
        assert int(root.find(NANOSECONDS % name).text) <= 100_000_000
        assert root.find(f".//{SPACE}data_writer").get("is_default_profile") == "true"


def test_both_files_say_the_same():
    older, newer = ((CONFIG / name).read_text().partition("-->")[2] for name in ("fastdds.xml", "fastdds3.xml"))
    assert newer.replace("heartbeat_period", "heartbeatPeriod") == older


@pytest.mark.skipif("fastrtps" not in rclpy.get_rmw_implementation_identifier(), reason="another DDS is in use")
def test_the_installed_fast_dds_reads_its_file():
    names = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    files = dict(zip(names, (str(CONFIG / "fastdds.xml"), str(CONFIG / "fastdds3.xml")), strict=True))
    environment = {**os.environ, **files, "ROS_DOMAIN_ID": str(claim_domain())}
    environment.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None)
    body = "import rclpy; rclpy.init(); rclpy.create_node('probe'); print('made')"
    result = subprocess.run([sys.executable, "-c", body], env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "made\n", "nothing is said against it"
    wrong = {**environment, **dict.fromkeys(names, str(CONFIG / "yam.yaml"))}
    result = subprocess.run([sys.executable, "-c", body], env=wrong, capture_output=True, text=True, check=False)
    assert "XML" in result.stdout, "a file that is not read does say so"
