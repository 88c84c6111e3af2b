# SPDX-License-Identifier: Apache-2.0
# Functions of ./dev and deploy/build.sh, which source it.
# shellcheck shell=bash

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
die() { printf './dev: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

missing_packages() {
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

install_debian() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}
