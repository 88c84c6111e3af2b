#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes packages, images and releases out of programs that are built; `./dev
# package`, `image` and `release` run it.
#
# usage: deploy/build.sh package | image [NAME] | release [--snapshot]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly OUT=build/release
readonly IMAGES=(skerry-small skerry-node)
readonly SUITE=bookworm
readonly IN_EACH=(tini ca-certificates)
declare -rA IN_IMAGE=(
  [skerry-small]="skerry skerry-coordinator"
  [skerry-node]="skerry skerryd skerry-engine python3-venv openssh-server"
)
# SkyPilot and people install more into a node.
declare -rA VARIANT=([skerry-small]=essential [skerry-node]=apt)
declare -rA STARTS=([skerry-small]=coordinator [skerry-node]=node)

# shellcheck source=deploy/shell.sh
. deploy/shell.sh

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

need_tools() {
  local missing
  missing=$(missing_packages "$@" | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  say "installing Debian packages: $missing"
  # shellcheck disable=SC2086
  install_debian $missing >/dev/null || die "apt-get install failed: run it by hand to see why"
}

project_version() { sed -n 's/^project(skerry VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt; }

# Grows with the time of the commit, and is older than the release that follows.
snapshot_version() {
  printf '%s~%s.%s\n' "$(project_version)" \
    "$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y%m%d%H%M)" \
    "$(git rev-parse --short=8 HEAD)"
}

# ---- Packages

# package VERSION [FOLDER]: with the second engine, which is in FOLDER.
package() {
  local version=$1 second=${2:-} log
  need_tools dpkg-dev file
  log=$(mktemp)
  say "packages of version $version"
  rm -f "$OUT"/*.deb
  {
    cmake -DSKERRY_PACKAGE_VERSION="$version" -DSKERRY_SECOND_ENGINE="$second" \
      -DSKERRY_SECOND_TORCH_VERSION="${SECOND_TORCH_VERSION:-}" build &&
      cmake --build build --target package_files &&
      cpack --config build/CPackConfig.cmake
  } >"$log" 2>&1 || { cat "$log" >&2; rm -f "$log"; die "the packages cannot be built"; }
  rm -rf "$log" "$OUT/_CPack_Packages"
}

# ---- Images

# root_of NAME TAR: the file system of an image, from Debian and our packages.
root_of() {
  local repository packages
  repository=$(mktemp -d)
  cp "$OUT"/*.deb "$repository"
  (cd "$repository" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
  echo "deb [trusted=yes] copy://$repository ./" >"$repository/skerry.list"
  chmod -R a+rX "$repository"
  packages="${IN_EACH[*]} ${IN_IMAGE[$1]}"
  # Containers need no manuals, and no two hosts may share a key of sshd.
  # shellcheck disable=SC2016
  mmdebstrap --quiet --variant="${VARIANT[$1]}" --include="${packages// /,}" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --aptopt='APT::Install-Recommends "false"' \
    --setup-hook='mkdir -p "$1/etc/apt/sources.list.d"' \
    --setup-hook="copy-in $repository/skerry.list /etc/apt/sources.list.d" \
    --customize-hook='rm -f "$1"/etc/apt/sources.list.d/skerry.list "$1"/etc/ssh/ssh_host_*' \
    --customize-hook='rm -rf "$1"/usr/share/doc/skerry "$1"/var/log/* "$1"/var/cache/ldconfig' \
    --customize-hook='install -D -m 755 deploy/image/entry "$1/usr/libexec/skerry/entry"' \
    --customize-hook='rm -f "$1/etc/hostname" "$1/etc/resolv.conf"' \
    --customize-hook='mkdir -p "$1/workspace"' \
    --skip=output/mknod "$SUITE" "$2"
  rm -rf "$repository"
}

image() {
  local name=$1 version=$2 work tag=${2//\~/-}
  need_tools dpkg-dev mmdebstrap umoci skopeo
  say "image $name of version $version"
  rm -f "$OUT/$name"_*.oci.tar
  work=$(mktemp -d)
  root_of "$name" "$work/root.tar" || die "the file system of $name cannot be made"
  umoci init --layout "$work/oci"
  umoci new --image "$work/oci:$tag"
  umoci raw add-layer --image "$work/oci:$tag" "$work/root.tar"
  umoci config --image "$work/oci:$tag" \
    --config.entrypoint /usr/bin/tini --config.entrypoint -- \
    --config.entrypoint /usr/libexec/skerry/entry --config.cmd "${STARTS[$name]}" \
    --config.env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --config.env NVIDIA_VISIBLE_DEVICES=all \
    --config.env NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    --config.workingdir /workspace --config.volume /workspace \
    --config.label "org.opencontainers.image.title=$name" \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label org.opencontainers.image.licenses=Apache-2.0 \
    --created "$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
  skopeo copy --quiet "oci:$work/oci:$tag" "oci-archive:$OUT/${name}_$tag.oci.tar:$name:$tag"
  rm -rf "$work"
}

# ---- Releases

release() {
  local version tag each
  version=$(project_version)
  tag=v$version
  [ -z "$(git status --porcelain)" ] || die "the tree has changes; commit or stash them first"
  if [ "${1:-}" = --snapshot ]; then
    version=$(snapshot_version)
  elif [ "$(git rev-parse -q --verify "$tag^{commit}")" != "$(git rev-parse HEAD)" ]; then
    die "HEAD is not at the tag $tag; check it out, or give --snapshot"
  fi
  rm -rf "$OUT"
  mkdir -p "$OUT"
  git archive --format=tar --prefix="skerry-$version/" HEAD | gzip -n >"$OUT/skerry-$version.tar.gz"
  package "$version" "$PWD/build-torch-${SECOND_TORCH_VERSION%.*}/engine"
  for each in "${IMAGES[@]}"; do image "$each" "$version"; done
  (cd "$OUT" && sha256sum -- *.tar.gz *.deb *.oci.tar >SHA256SUMS)
  ls -l "$OUT" >&2
}

case ${1:-} in
  package) package "$(snapshot_version)" ;;
  image)
    [ $# -gt 1 ] || set -- image "${IMAGES[@]}"
    for each in "${@:2}"; do
      [ -n "${STARTS[$each]:-}" ] || die "there is no image $each; there are ${IMAGES[*]}"
    done
    package "$(snapshot_version)"
    for each in "${@:2}"; do image "$each" "$(snapshot_version)"; done
    ;;
  release) release "${@:2}" ;;
  *) die "usage: deploy/build.sh package | image [NAME …] | release [--snapshot]" ;;
esac
