#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rents Vast machines for nodes, and gives them back. Needs Vast's own program:
# pip install vastai.
set -euo pipefail

usage() {
  cat <<'HELP'
Rents a Vast machine that joins a fleet as a node, and gives it back.

usage: deploy/vast.sh offers | rent OFFER | give-back INSTANCE [NODE]

  offers                    list machines with a driver that CUDA 13 needs, cheapest first
  rent OFFER                rent one and print its id; bills until it is given back
  give-back INSTANCE NODE   drain the node NODE, then destroy the machine and its disk

variables:
  SKERRY_TOKEN   of rent: what `skerry token create --role node --uses N` prints
  SKERRY_IMAGE   of rent: where you pushed skerry-node, as registry.example/me/skerry-node:0.1.0
  BID            of rent: dollars an hour for an interruptible machine [none: on demand]
  DISK           of rent: GB, fixed for the machine's life [60]
  PUBLIC_KEY     of rent: an SSH key, to log in [none: no sshd]

A stopped instance still bills its disk: only give-back ends that.
Vast pauses an interruptible machine without a notice: the steps since the last commit are lost.

examples:
  deploy/vast.sh offers
  SKERRY_IMAGE=registry.example/me/skerry-node:0.1.0 BID=0.2 deploy/vast.sh rent 384826
  deploy/vast.sh give-back 7835610 gpu-1
HELP
}

die() { printf 'vast.sh: %s\n' "$*" >&2; exit 78; }

need() {
  local name
  for name in "$@"; do
    [ -n "${!name:-}" ] || die "$name is not set; deploy/vast.sh --help explains it"
  done
}

offers() {
  vastai search offers 'num_gpus=1 cuda_vers>=13.0 direct_port_count>=2 inet_up>=100' -o dph
}

rent() {
  need SKERRY_TOKEN SKERRY_IMAGE
  [[ ${1:-} =~ ^[0-9]+$ ]] || die "rent needs the number of an offer, found '${1:-}'"
  local settings="-e SKERRY_TOKEN=$SKERRY_TOKEN -p 22:22 -p 7610:7610"
  if [ -n "${PUBLIC_KEY:-}" ]; then settings+=" -e PUBLIC_KEY=\"$PUBLIC_KEY\""; fi
  local bid=()
  if [ -n "${BID:-}" ]; then bid=(--bid_price "$BID"); fi
  vastai create instance "$1" --image "$SKERRY_IMAGE" --disk "${DISK:-60}" --label skerry-node \
    --env "$settings" "${bid[@]}" --cancel-unavail --args node
}

give_back() {
  [[ ${1:-} =~ ^[0-9]+$ ]] || die "give-back needs the number of an instance, found '${1:-}'"
  if [ -n "${2:-}" ]; then skerry node drain "$2"; fi
  vastai destroy instance "$1" --yes
}

case ${1:-} in
  offers) offers ;;
  rent | give-back) "${1/-/_}" "${@:2}" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
