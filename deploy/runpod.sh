#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Rents RunPod machines for nodes, and gives them back.
set -euo pipefail

readonly API=${RUNPOD_API:-https://rest.runpod.io/v1}

usage() {
  cat <<'HELP'
Rents a RunPod machine that joins a fleet as a node, and gives it back.

usage: deploy/runpod.sh rent | give-back POD [NODE]

  rent                 rent one machine and print its id; bills until it is given back
  give-back POD NODE   drain the node NODE, then delete the machine POD and its volume

variables:
  RUNPOD_API_KEY   your key
  SKERRY_TOKEN     of rent: what `skerry token create --role node --uses N` prints
  SKERRY_IMAGE     of rent: where you pushed skerry-node, as registry.example/me/skerry-node:0.1.0
  GPU              of rent: RunPod's name of the card [NVIDIA GeForce RTX 4090]
  SPOT             of rent: true for an interruptible machine [true]
  PUBLIC_KEY       of rent: an SSH key, to log in [none: no sshd]

RunPod ends an interruptible machine with SIGTERM and SIGKILL 5 s later; skerryd commits within 4 s.

examples:
  SKERRY_IMAGE=registry.example/me/skerry-node:0.1.0 deploy/runpod.sh rent
  deploy/runpod.sh give-back k1x2y3z4 gpu-1
HELP
}

die() { printf 'runpod.sh: %s\n' "$*" >&2; exit 78; }

need() {
  local name
  for name in "$@"; do
    [ -n "${!name:-}" ] || die "$name is not set; deploy/runpod.sh --help explains it"
  done
}

# ask METHOD PATH [BODY]: the key goes through a file, which no process list
# shows.
ask() {
  curl --fail-with-body --silent --show-error --request "$1" --url "$API/$2" \
    --header @<(printf 'Authorization: Bearer %s\n' "$RUNPOD_API_KEY") \
    --header 'Content-Type: application/json' ${3:+--data @"$3"}
}

rent() {
  need RUNPOD_API_KEY SKERRY_TOKEN SKERRY_IMAGE
  local body
  body=$(mktemp)
  # shellcheck disable=SC2064
  trap "rm -f '$body'" EXIT
  python3 - >"$body" <<'BODY'
import json, os

env = {"SKERRY_TOKEN": os.environ["SKERRY_TOKEN"]}
if os.environ.get("PUBLIC_KEY"):
    env["PUBLIC_KEY"] = os.environ["PUBLIC_KEY"]
print(json.dumps({
    "name": "skerry-node",
    "imageName": os.environ["SKERRY_IMAGE"],
    "computeType": "GPU",
    "gpuTypeIds": [os.environ.get("GPU", "NVIDIA GeForce RTX 4090")],
    "gpuCount": 1,
    "interruptible": os.environ.get("SPOT", "true") == "true",
    "containerDiskInGb": 20,
    "volumeInGb": 60,
    "volumeMountPath": "/workspace",
    "supportPublicIp": True,
    "ports": ["22/tcp", "7610/tcp"],
    "dockerStartCmd": ["node"],
    "env": env,
}))
BODY
  ask POST pods "$body"
}

give_back() {
  need RUNPOD_API_KEY
  [ -n "${1:-}" ] || die "give-back needs the id of the machine"
  if [ -n "${2:-}" ]; then skerry node drain "$2"; fi
  ask DELETE "pods/$1"
}

case ${1:-} in
  rent) rent ;;
  give-back) give_back "${@:2}" ;;
  -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
