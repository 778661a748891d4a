"""The whole graph on a simulated bimanual YAM rig: `ros2 launch vag_policy yam_sim.launch.py`."""

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
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

GRAPH = "yam_sim"


def start_nodes(context):
    """The nodes of the graph's table, with the arguments that were given."""

    def value(name):
        return LaunchConfiguration(name).perform(context)

    rig = load_rig(value("rig")) if value("rig") else None
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
            remappings=list(frames.items()),
            output="screen",
        )
        for spec in graph(GRAPH, rig, given)
    ]
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        namespace=namespace,
        arguments=["-d", str(share_directory("config") / "vag.rviz")],
        remappings=list(frames.items()),
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return [*nodes, rviz]


def generate_launch_description():
    return LaunchDescription(
        [
            DeclareLaunchArgument("rig", default_value="", description="a rig whose base spacing is simulated"),
            *(DeclareLaunchArgument(a.name, default_value="", description=a.description) for a in ARGUMENTS),
            DeclareLaunchArgument("namespace", default_value="", description="put the whole graph below this name"),
            DeclareLaunchArgument("params_file", default_value="", description="a parameter file read after ours"),
            DeclareLaunchArgument("rviz", default_value="false", description="start RViz: true or false"),
            OpaqueFunction(function=start_nodes),
        ]
    )
