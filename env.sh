# Source this (bash or zsh): a shell with ROS 2, the virtual environment and the built interfaces.
_vag_root=$(cd "$(dirname "${BASH_SOURCE[0]:-${(%):-%x}}")" && pwd)
if [ ! -f "$_vag_root/.venv/.vag_packages" ]; then
  echo "vag_policy: no environment yet; run 'make env' first" >&2
  unset _vag_root
  return 1
fi
unset _ROS_WHEELS_BOOTSTRAP_COMPLETE PYTHONDONTWRITEBYTECODE
_vag_ros=$(cat "$_vag_root/.venv/.vag_ros_prefix")
if [ -n "$_vag_ros" ]; then
  . "$_vag_ros/setup.sh"
  . "$_vag_root/.venv/bin/activate"
else
  unset LD_LIBRARY_PATH PYTHONPATH
  . "$_vag_root/.venv/bin/activate"
  export ROS_DISTRO=jazzy ROS_VERSION=2 ROS_PYTHON_VERSION=3
  export AMENT_PREFIX_PATH="$VIRTUAL_ENV" CMAKE_PREFIX_PATH="$VIRTUAL_ENV"
fi
[ ! -f "$_vag_root/.venv/ros/install/local_setup.sh" ] || COLCON_CURRENT_PREFIX="$_vag_root/.venv/ros/install" . "$_vag_root/.venv/ros/install/local_setup.sh"
unset COLCON_CURRENT_PREFIX
# Images of 0.5 MB and more need larger shared-memory segments than Fast DDS's default. Fast DDS 2 (Jazzy) reads
# the variable with the old name, Fast DDS 3 (Lyrical) the new one; their files differ.
export FASTDDS_DEFAULT_PROFILES_FILE="${FASTDDS_DEFAULT_PROFILES_FILE:-$_vag_root/config/fastdds3.xml}"
export FASTRTPS_DEFAULT_PROFILES_FILE="${FASTRTPS_DEFAULT_PROFILES_FILE:-$_vag_root/config/fastdds.xml}"
export MUJOCO_GL="${MUJOCO_GL:-egl}"
unset _vag_root _vag_ros
