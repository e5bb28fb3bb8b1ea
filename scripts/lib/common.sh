# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# What every script here needs: where things are, how to speak, how many jobs the machine bears.
# Sourced with `set -euo pipefail` already in force.

SNUG_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
SNUG_CACHE=${SNUG_CACHE:-${XDG_CACHE_HOME:-${HOME:?HOME is not set; set it, or SNUG_CACHE}/.cache}/snug}

say() { printf '==> %s\n' "$*" >&2; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 2
}

# The comment block below a script's SPDX line is its help.
print_usage() { sed -n '3,/^[^#]/{/^#/!q;s/^# \{0,1\}//p}' "$1"; }

# run_quietly LOG COMMAND...: the output goes to LOG, and to the terminal only if the command fails.
run_quietly() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 && return
  local code=$?
  cat "$log" >&2
  return "$code"
}

# Memory this process may use, in MiB: what is free, or less where a control group says so.
available_memory_mib() {
  local free limit used group=/sys/fs/cgroup
  free=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  limit=$(cat $group/memory.max 2>/dev/null || echo max)
  used=$(cat $group/memory.current 2>/dev/null || echo 0)
  if [ "$limit" != max ] && [ $(((limit - used) / 1048576)) -lt "$free" ]; then
    free=$(((limit - used) / 1048576))
  fi
  echo "$free"
}

# A unit that includes libtorch takes about 1.2 GiB to compile; more jobs than fit make a machine swap.
build_jobs() {
  local cores memory jobs
  cores=$(nproc)
  memory=$(available_memory_mib)
  jobs=$((memory / 1536))
  [ "$jobs" -lt "$cores" ] || jobs=$cores
  [ "$jobs" -ge 1 ] || jobs=1
  echo "$jobs"
}

# CUDA is built in where there is a GPU whose driver knows CUDA 13; SNUG_CUDA=on|off overrides.
want_cuda() {
  case ${SNUG_CUDA:-auto} in
    on) return 0 ;;
    off) return 1 ;;
    auto) driver_knows_cuda_13 ;;
    *) die "SNUG_CUDA=$SNUG_CUDA; it is one of auto, on, off" ;;
  esac
}

driver_knows_cuda_13() {
  local version
  command -v nvidia-smi >/dev/null || return 1
  version=$(nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\([0-9]*\)\..*/\1/p' | head -n 1)
  [ -n "$version" ] || return 1
  if [ "$version" -lt 13 ]; then
    warn "the NVIDIA driver knows CUDA $version only; building for the CPU (CUDA 13 needs driver 580 or newer)"
    return 1
  fi
}

libtorch_name() { if want_cuda; then echo torch-2.11.0-cuda; else echo torch-2.11.0; fi; }
libtorch_dir() { echo "$SNUG_CACHE/$(libtorch_name)"; }

# libtorch with its CUDA half where scripts/setup has put it, or nothing.
cuda_libtorch_dir() {
  local dir=$SNUG_CACHE/torch-2.11.0-cuda
  if [ -e "$dir/.complete" ]; then echo "$dir"; fi
}
