#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh [--prefix DIR]: puts snug under DIR (default ~/.local): all of it in DIR/lib/snug, and a link
# to the program in DIR/bin. An earlier one there is replaced. Nothing else is touched.
# install.sh --uninstall [--prefix DIR]: takes it away again.
set -eu

fail() {
  echo "error: $1" >&2
  shift
  for line in "$@"; do echo "       $line" >&2; done
  exit 2
}

# Is version $1 at least $2?
at_least() {
  [ "${1%%.*}" -gt "${2%%.*}" ] || { [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${1#*.}" -ge "${2#*.}" ]; }
}

check_machine() {
  [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
    fail "this is $(uname -s) on $(uname -m); this snug is for Linux on x86_64"
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc \([0-9]*\.[0-9]*\).*/\1/p') || true
  [ -n "$found" ] ||
    fail "this system has no glibc (Alpine and others with musl do not); snug needs glibc $GLIBC" \
      "a container of debian:12 or later has it"
  at_least "$found" "$GLIBC" ||
    fail "this system has glibc $found; snug needs $GLIBC, as in Debian 12, Ubuntu 24.04 or Fedora 37" \
      "run it in a container of one of these"
}

# The copy is whole before the one in use makes room for it.
install() {
  check_machine
  [ ! -e "$link" ] || [ -L "$link" ] || fail "$link is there, and not a link of this script: move it away"
  [ ! -e "$home" ] || [ -e "$home/install.sh" ] || fail "$home is there, and not of this script: move it away"
  mkdir -p "$prefix/bin" "$prefix/lib" || fail "cannot write under $prefix; --prefix DIR takes another folder"
  rm -rf "$home.part"
  cp -R "$here" "$home.part" || fail "cannot copy to $home.part"
  "$home.part/bin/snug" version >/dev/null || fail "the program does not start (above); nothing was installed"
  rm -rf "$home"
  mv "$home.part" "$home"
  ln -sfn ../lib/snug/bin/snug "$link"
  echo "$("$link" version | sed 1q) is in $home; $link is a link to it"
  case :$PATH: in
    *":$prefix/bin:"*) echo "try: snug demo" ;;
    *) echo "$prefix/bin is not on PATH: export PATH=\"$prefix/bin:\$PATH\", then: snug demo" ;;
  esac
  echo "to take it away: \"$home/install.sh\" --uninstall${given:+ --prefix \"$prefix\"}"
}

uninstall() {
  [ -e "$home/install.sh" ] || fail "there is no snug in $home${given:+; --prefix says where it is}"
  [ ! -L "$link" ] || rm -f "$link"
  rm -rf "$home"
  echo "removed $home and $link"
}

GLIBC=2.36
here=$(cd "$(dirname "$0")" && pwd)
prefix=${HOME:-}/.local
action=install given=''
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -gt 1 ] || fail "--prefix needs a folder" && prefix=$2 given=1 && shift ;;
    --prefix=*) prefix=${1#*=} given=1 ;;
    --uninstall) action=uninstall ;;
    -h | --help) sed -n '3,5s/^# //p' "$0" && exit ;;
    *) fail "unknown option $1; see install.sh --help" ;;
  esac
  shift
done
case $prefix in /*) ;; *) prefix=$PWD/$prefix ;; esac
home=$prefix/lib/snug link=$prefix/bin/snug
$action
