# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Debian packages: which ones, and how to get those that are missing. Needs common.sh.

# The compiler and what drives it; pip fetches libtorch.
SNUG_BUILD_PACKAGES=(
  ca-certificates g++ cmake ninja-build ccache pkg-config python3 python3-pip
  nlohmann-json3-dev libfmt-dev libyaml-cpp-dev
  libsentencepiece-dev libpcre2-dev libicu-dev
  libjpeg-dev libpng-dev libwebp-dev
  libcurl4-openssl-dev libssl-dev zlib1g-dev libxxhash-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libgmock-dev
)
# What scripts/check runs; the version of clang-format decides about every line of the tree.
SNUG_CHECK_PACKAGES=(clang-format-14 shellcheck)
SNUG_TIDY_PACKAGES=(clang-tidy-14)
# For tests that skip themselves without: a Slurm of one node, two hosts by network namespaces.
SNUG_CLUSTER_PACKAGES=(slurm-wlm munge iproute2)

# A browser that looks at the lab's report pages, and what its driver's Python is made from.
SNUG_BROWSER_PACKAGES=(chromium fonts-dejavu-core python3-venv)

# Emoji as pictures, their names, and what puts them on a sheet (scripts/demo-caption).
SNUG_PICTURE_PACKAGES=(fonts-noto-color-emoji unicode-cldr-core fonts-dejavu-core python3 python3-pil)

# A Python for docs/lab's notebooks is made from these and PyPI.
SNUG_NOTEBOOK_PACKAGES=(python3-venv)

# What scripts/package makes packages with, beside a Python from PyPI.
SNUG_PACKAGE_PACKAGES=(binutils python3-venv xz-utils)

# What makes the root of scripts/fresh-machine.
SNUG_FRESH_PACKAGES=(debootstrap debian-archive-keyring)

missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

# ensure_packages NAME...: nothing to do where all are there, otherwise apt-get as root or by sudo.
ensure_packages() {
  local missing
  [ -z "${SNUG_SKIP_PACKAGES:-}" ] || return 0
  if ! command -v dpkg-query >/dev/null; then
    warn "this is no Debian or Ubuntu: not looking for packages; docs/install.md lists what is needed"
    return 0
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  install_packages "${missing[@]}"
}

install_packages() {
  can_be_root ||
    die "these Debian packages are missing, and there is no root here to install them" \
      "ask for:  apt-get install --no-install-recommends $*" \
      "or, if the same libraries come from elsewhere (modules, conda), set SNUG_SKIP_PACKAGES=1"
  say "installing Debian packages: $*"
  refresh_package_index
  apt_get install -y --no-install-recommends "$@" ||
    die "apt-get could not install: $*" "its own words are above"
}

refresh_package_index() {
  apt_get update || warn "apt-get update failed (above); going on with the package lists that are here"
}

# sudo may ask for a password only where somebody can type it.
can_be_root() {
  [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; }
}

apt_get() {
  local command=(env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)
  [ "$(id -u)" -eq 0 ] || command=(sudo "${command[@]}")
  run_quietly "$SNUG_CACHE/logs/apt-get.log" "${command[@]}" "$@"
}
