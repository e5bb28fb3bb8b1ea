# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Python wheels as plain archives of libraries: fetched by pip (so that its mirrors, proxies and
# certificates hold), checked against pinned hashes, unpacked without Python ever running them.
# Needs common.sh.

# The marker that is written last: a folder without it is not whole.
WHEELS_MARKER=.complete

# fetch_wheels NAME REQUIREMENTS [options of unpack_wheel.py]
# makes $SNUG_CACHE/NAME out of the wheels that REQUIREMENTS pins, once; two at a time wait.
fetch_wheels() {
  local dest="$SNUG_CACHE/$1" lock
  [ ! -e "$dest/$WHEELS_MARKER" ] || return 0
  mkdir -p "$(dirname "$dest")" || die "cannot make $(dirname "$dest")" "set SNUG_CACHE to a folder you may write"
  lock="$(dirname "$dest")/.$(basename "$dest").lock"
  (
    flock -n 9 || { say "waiting for another setup that is making $dest" && flock 9; }
    [ -e "$dest/$WHEELS_MARKER" ] || make_wheel_folder "$dest" "${@:2}"
  ) 9>"$lock"
}

# Under a temporary name first, then renamed: whoever looks sees the whole folder or none.
make_wheel_folder() (
  dest=$1 requirements=$2
  shift 2
  work="$(dirname "$dest")/.$(basename "$dest").part"
  rm -rf "$work" "$work.old"
  trap 'rm -rf "$work" "$work.old"' EXIT
  trap 'exit 130' INT TERM
  mkdir -p "$work/wheels" "$work/tree"
  say "fetching $(basename "$dest") ($(wheel_names "$requirements"))"
  download_wheels "$requirements" "$work/wheels"
  python3 "$SNUG_ROOT/scripts/lib/unpack_wheel.py" "$@" --to "$work/tree" "$work"/wheels/*.whl ||
    die "could not unpack into $work" "is the disk full? $(df -h "$work" | tail -n 1)"
  cp "$requirements" "$work/tree/$WHEELS_MARKER"
  [ ! -e "$dest" ] || mv "$dest" "$work.old"
  mv "$work/tree" "$dest"
)

wheel_names() { sed -n 's/^\([^#=]*==[^ ]*\).*/\1/p' "$1" | paste -sd ' '; }

# Python's own version does not matter, nothing here is imported; the tags name the pinned files.
download_wheels() {
  local tags=(--platform manylinux2014_x86_64 --platform any) minor progress=off
  [ "$(uname -m)" = x86_64 ] || die "this is $(uname -m); the pinned libtorch is for x86_64 only"
  for minor in $(seq 5 28); do tags+=(--platform "manylinux_2_${minor}_x86_64"); done
  [ ! -t 2 ] || progress=on
  PIP_REQUIRE_VIRTUALENV=0 PIP_DISABLE_PIP_VERSION_CHECK=1 run_pip download --quiet \
    --progress-bar "$progress" --no-cache-dir --no-deps --only-binary=:all: --python-version 3.11 \
    "${tags[@]}" --dest "$2" --requirement "$1" >&2 ||
    die "pip could not fetch the wheels that ${1#"$SNUG_ROOT"/} names" \
      "behind a proxy or mirror set PIP_PROXY, PIP_INDEX_URL, PIP_CERT (or pip.conf)" \
      "or copy $SNUG_CACHE from a machine that has it; see docs/install.md"
}

run_pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip "$@"
  elif command -v pip3 >/dev/null; then
    pip3 "$@"
  else
    die "pip is missing" "install it: apt-get install python3-pip, or python3 -m ensurepip --user"
  fi
}
