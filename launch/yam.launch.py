"""A real bimanual YAM rig: `ros2 launch vag_policy yam.launch.py rig:=i2rt checkpoint:=/path/to/checkpoint`.

Start the drivers of the arms and cameras first. Nothing moves before `ros2 service call /joint_command/arm
std_srvs/srv/Trigger` and an instruction.
"""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from vag_policy.bringup import (
    ARGUMENTS,
    argument_parameters,
    checked_namespace,
    graph,
    namespace_remappings,
    share_directory,
)
from vag_policy.rig_file import load_rig
from vag_policy.robots.yam_model import urdf
from vag_policy.robots.yam_rig import RigGeometry

GRAPH = "yam"


def start_nodes(context):
    """The nodes of the graph's table with the rig's names, and the rig's robot description."""

    def value(name):
        return LaunchConfiguration(name).perform(context)

    rig = load_rig(value("rig"))
    namespace = checked_namespace(value("namespace"))
    frames = namespace_remappings(namespace)
    given = argument_parameters(GRAPH, {argument.name: value(argument.name) for argument in ARGUMENTS})
    extra = [value("params_file")] if value("params_file") else []
    nodes = [
        Node(
            package="vag_policy",
            executable=spec.executable,
            name=spec.name,
            namespace=namespace,
            parameters=[str(share_directory("config") / file) for file in spec.config] + extra + [spec.parameters],
            remappings=list({**frames, **spec.remappings}.items()),
            output="screen",
        )
        for spec in graph(GRAPH, rig, given)
    ]
    description = Node(
        package="robot_state_publisher",
        executable="robot_state_publisher",
        namespace=namespace,
        parameters=[{"robot_description": urdf(RigGeometry(spacing=rig.base_spacing))}],
        remappings=list(frames.items()),
        condition=IfCondition(LaunchConfiguration("describe")),
    )
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        namespace=namespace,
        arguments=["-d", str(share_directory("config") / "vag.rviz")],
        remappings=list(frames.items()),
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return [*nodes, description, rviz]


def generate_launch_description():
    return LaunchDescription(
        [
            DeclareLaunchArgument("rig", default_value="ros2_control", description="a rig in config/rig/, or a path"),
            *(DeclareLaunchArgument(a.name, default_value="", description=a.description) for a in ARGUMENTS),
            DeclareLaunchArgument("namespace", default_value="", description="put the whole graph below this name"),
            DeclareLaunchArgument("params_file", default_value="", description="a parameter file read after ours"),
            DeclareLaunchArgument(
                "describe", default_value="true", description="publish robot_description and tf: true or false"
            ),
            DeclareLaunchArgument("rviz", default_value="false", description="start RViz: true or false"),
            DeclareLaunchArgument("record", default_value="false", description="record every topic: true or false"),
            DeclareLaunchArgument("bag", default_value="vag_bag", description="folder of the recorded bag"),
            OpaqueFunction(function=start_nodes),
            ExecuteProcess(
                cmd=["ros2", "bag", "record", "--all", "--storage", "mcap", "--output", LaunchConfiguration("bag")],
                output="screen",
                condition=IfCondition(LaunchConfiguration("record")),
            ),
        ]
    )
