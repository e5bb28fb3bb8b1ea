# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# The minimal Debian 12 that scripts/fresh-machine copies: made by debootstrap once, and again when it is old or what
# goes into it changed. Needs common.sh and packages.sh.

DEBIAN_RELEASE=bookworm
BASE_PACKAGES=git,ca-certificates
BASE_ROOT=$SNUG_CACHE/roots/$DEBIAN_RELEASE
BASE_DAYS=14
MACHINES=$SNUG_CACHE/machines
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
NAMESPACES=(--mount --pid --uts --ipc --fork --kill-child)

cannot() {
  printf 'error: no fresh machine: %s\n' "$1" >&2
  shift
  [ $# -eq 0 ] || printf '       %s\n' "$@" >&2
  exit 125
}

# Nothing is ever mounted in these folders outside of a namespace that is gone by then; this holds even so.
remove_tree() { rm -rf --one-file-system "$1"; }

# Where apt on this machine gets a suite from, so that a mirror is used here too.
apt_source() {
  ! command -v apt-get >/dev/null ||
    apt-get update --print-uris 2>/dev/null | sed -n "s#^'\(https\?://.*\)/dists/$1/InRelease'.*#\1#p" | sed -n 1p
}

apt_sources() {
  local main security
  main=${SNUG_DEBIAN_MIRROR:-$(apt_source $DEBIAN_RELEASE)}
  security=$(apt_source $DEBIAN_RELEASE-security)
  main=${main:-http://deb.debian.org/debian}
  echo "deb $main $DEBIAN_RELEASE main"
  echo "deb $main $DEBIAN_RELEASE-updates main"
  echo "deb ${security:-http://deb.debian.org/debian-security} $DEBIAN_RELEASE-security main"
}

# How apt on this machine gets through to its mirrors.
apt_settings() { ! command -v apt-config >/dev/null || apt-config dump | grep -E '^Acquire::(https?::|Check-)' || true; }

base_inputs() { printf '%s\n' "$BASE_PACKAGES" "$(apt_sources)"; }

ensure_base_root() {
  local made=$BASE_ROOT.made
  if [ -d "$BASE_ROOT" ] && [ "$(cat "$made" 2>/dev/null)" = "$(base_inputs)" ] &&
    [ -z "$(find "$made" -mtime +$BASE_DAYS)" ]; then
    return
  fi
  (ensure_packages "${SNUG_FRESH_PACKAGES[@]}") || cannot "debootstrap is not installed"
  if make_base_root; then
    base_inputs >"$made"
  elif [ -d "$BASE_ROOT" ]; then
    warn "going on with the root of $(date -r "$made" +%F), since a newer one could not be made (above)"
  else
    cannot "debootstrap could not make a root (above)"
  fi
}

# In a mount namespace, since debootstrap mounts /proc and /sys and may be ended before it unmounts them.
make_base_root() {
  local part=$BASE_ROOT.part mirror proxy
  say "making a Debian root in $BASE_ROOT"
  remove_tree "$part"
  mkdir -p "$BASE_ROOT.part"
  mirror=$(apt_sources | awk 'NR == 1 {print $2}')
  proxy=$(apt_settings | sed -n 's/^Acquire::http::Proxy "\(..*\)";/\1/p')
  http_proxy=${http_proxy:-$proxy} run_quietly "$SNUG_CACHE/logs/debootstrap.log" unshare --mount \
    debootstrap --variant=minbase --include="$BASE_PACKAGES" "$DEBIAN_RELEASE" "$part" "$mirror" || return
  rm -rf "$part"/var/cache/apt/archives/*.deb "$part"/var/lib/apt/lists/*
  apt_sources >"$part/etc/apt/sources.list"
  # Services of packages are not started when they are installed, as in any container.
  printf '#!/bin/sh\nexit 101\n' >"$part/usr/sbin/policy-rc.d"
  chmod +x "$part/usr/sbin/policy-rc.d"
  remove_tree "$BASE_ROOT"
  mv "$part" "$BASE_ROOT"
}

# carry_in ROOT: names, and how to reach mirrors, as they are on this machine now.
carry_in() {
  local root=$1 file
  echo fresh >"$root/etc/hostname"
  printf '127.0.0.1 localhost fresh\n::1 localhost\n' >"$root/etc/hosts"
  rm -f "$root/etc/resolv.conf"
  cp -L /etc/resolv.conf "$root/etc/resolv.conf" || warn "no /etc/resolv.conf: the fresh machine finds no hosts"
  apt_settings >"$root/etc/apt/apt.conf.d/90mirrors"
  file=${PIP_CERT:-$CERTIFICATES}
  [ ! -e "$file" ] || cp -L "$file" "$root$CERTIFICATES"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp -L -t "$root/usr/local/share/ca-certificates" {} + 2>/dev/null || true
  [ ! -e /etc/pip.conf ] || cp -L /etc/pip.conf "$root/etc/pip.conf"
  for file in .config/pip/pip.conf .pip/pip.conf; do
    [ ! -e "$HOME/$file" ] || install -D "$HOME/$file" "$root/root/$file"
  done
}

# Folders that fetch_wheels completed: its marker is written last.
whole_wheel_folders() {
  local folder
  for folder in "$1"/torch-* "$1"/pyarrow-*; do
    [ ! -e "$folder/.complete" ] || echo "$folder"
  done
}
