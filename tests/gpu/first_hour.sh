#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Measures and checks what the project wants to know of a card, in 9 minutes.
#
# usage: first_hour.sh [--bin DIR] [--out DIR] [--quick]
#
#   - --bin DIR: the built programs; build/bin by default.
#   - --out DIR: logs and report.json; /tmp/first-hour by default.
#   - --quick: small models, a minute on a CPU; the default without a card.
#
# Each part has a limit and prints one line: PASS, FAIL or SKIP, and why. Then
# the next part runs. Exits with status 1 if a part failed.
set -uo pipefail
bin=build/bin out=/tmp/first-hour quick='' only=''
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --quick) quick=yes && shift ;;
    --part) only=$2 && shift 2 ;; # how this script runs a part under a limit
    *) sed -n '3,13s/^# \{0,1\}//p' "$0" && exit 2 ;;
  esac
done
here=$(dirname "$(readlink -f "$0")")
engine=$bin/skerry-engine
helper() { python3 -B "$here/first_hour.py" "$@"; }
skip() { echo "$*" && exit 77; }
has_card() { [ "${SKERRY_FIRST_HOUR_CARD:-}" = yes ]; }
need_card() { has_card || skip "no card"; }
device() { if has_card; then echo 0; else echo -1; fi; }
ask_card() { nvidia-smi --query-gpu="$1" --format=csv,noheader; }
readonly ERRORS=ecc.errors.uncorrected.volatile.total

small=(--width 32 --depth 2 --heads 2 --patch-size 4)
# train OUT OPTION…: 20 steps, or those of --stop-after, on $on.
train() {
  local to=$1 shape=("${small[@]}")
  shift
  [ -n "$quick" ] || shape=(--preset S/2)
  "$engine" train --standalone --dataset "$out/data" --out "$to" "${shape[@]}" --steps 20 \
    --batch-size 16 --device "${on:-$(device)}" "$@" 2>&1
}
same() { # NAME FILE FILE
  cmp -s "$2" "$3" || { echo "$1: the weights differ" && exit 1; }
}

# ---- The parts

part_machine() {
  local words="no card"
  if has_card; then
    ask_card name,uuid,driver_version,compute_cap,memory.total,power.limit,$ERRORS | tee "$out/card"
    words=$(ask_card name,driver_version | head -n 1)
  fi
  env | grep -E '^(CUDA|NVIDIA|TORCH|PYTORCH|CUBLAS)' | cut -c 1-200
  echo "$(nproc) cores, $(free -g | awk '/^Mem/ {print $2}') GiB, $words"
}
part_engine() { "$engine" --version; }
part_doctor() {
  [ -x "$bin/skerry" ] || skip "$bin/skerry is not built"
  need_card
  mkdir -p "$out/node"
  "$bin/skerry" doctor --data "$out/node" -o json >"$out/doctor.json" # 8: no coordinator is here
  helper doctor "$out/doctor.json"
}
part_check() { "$engine" check --device "$(device)"; }
part_dataset() {
  helper dataset "$out/images" && "$engine" ingest "$out/images" --out "$out/data" --partitions 2
}
# An engine that cannot use its kernels on a card computes the reference.
part_kernels() {
  "$engine" bench "${small[@]}" --steps 1 --warmup 1 --batch-size 4 --device "$(device)" -o json \
    >"$out/kernels.json" && helper kernels "$out/kernels.json"
}
# Equal inputs give equal bytes: twice, resumed, and with less memory.
part_bits() {
  local precision state options count=0
  for precision in fp32 bf16; do
    for state in full lean; do
      [ -z "$quick" ] || [ "$precision $state" = "bf16 lean" ] || continue
      options=(--precision "$precision" --state "$state")
      train "$out/once" "${options[@]}" && train "$out/twice" "${options[@]}" || exit 1
      same "$precision $state, a second time" "$out/once" "$out/twice"
      train "$out/half" "${options[@]}" --stop-after 10 &&
        train "$out/rest" "${options[@]}" --resume "$out/half" || exit 1
      same "$precision $state, resumed" "$out/once" "$out/rest"
      count=$((count + 1))
    done
  done
  echo "the same bits again and after a resume, in $count forms"
}
part_near_cpu() {
  need_card
  local kernels
  on=-1 train "$out/cpu-weights" --precision fp32 --kernels reference --threads 8 || exit 1
  for kernels in reference fast; do
    train "$out/card-weights" --precision fp32 --kernels $kernels || exit 1
    helper near "$out/card-weights" "$out/cpu-weights" || exit 1
  done
}
part_speed() {
  local models=(--preset "S/2,B/2,XL/2" --precision bf16 --batch-size 64,256 --steps 10)
  [ -z "$quick" ] || models=("${small[@]}" --precision fp32 --batch-size 16 --steps 2 --warmup 1)
  "$engine" bench "${models[@]}" --device "$(device)" -o json >"$out/speed.json" &&
    helper speed "$out/speed.json"
}
part_reference() {
  need_card
  "$engine" bench --preset B/2,XL/2 --precision bf16 --batch-size 64 --steps 5 --device 0 \
    --kernels reference -o json >"$out/reference.json" && helper speed "$out/reference.json"
}
# PyTorch's own step of the same models, eager and compiled.
part_rival() {
  need_card
  helper rival "$out/speed.json" "$here/../bench/train_rival.py"
}
part_memory() {
  need_card
  "$engine" plan --preset B/2 -o json >"$out/plan.json" &&
    helper memory "$out/plan.json" "$out/speed.json"
}
part_trace() {
  train "$out/traced" --profile "$out/trace.json" --profile-after 8 --profile-steps 3 || exit 1
  helper trace "$out/trace.json" 3
}
part_sanitizer() {
  need_card
  command -v compute-sanitizer >/dev/null || skip "no compute-sanitizer"
  # LibTorch tries what the driver may refuse, and then does without.
  compute-sanitizer --tool memcheck --report-api-errors no --error-exitcode 9 \
    "$engine" check --device 0
}
part_health() {
  need_card
  local now
  now=$(ask_card $ERRORS | sort -u | tr '\n' ' ')
  dmesg 2>/dev/null | grep -i xid && { echo "the driver reports Xid" && exit 1; }
  echo "uncorrected ECC errors: $now"
}

# ---- Running them

if [ -n "$only" ]; then
  "part_$only"
  exit
fi
mkdir -p "$out" || exit 1
rm -rf "${out:?}/data" "$out/images" "$out/results"
if nvidia-smi -L 2>/dev/null | grep -q GPU; then
  export SKERRY_FIRST_HOUR_CARD=yes
else
  quick=yes
fi
[ -z "$quick" ] || quick=--quick
failed=0
run() { # NAME LIMIT_SECONDS
  local began=$SECONDS status result words
  # shellcheck disable=SC2086
  timeout -k 5 "$2" "$0" --bin "$bin" --out "$out" $quick --part "$1" >"$out/$1.log" 2>&1
  status=$?
  case $status in
    0) result=PASS ;;
    77) result=SKIP ;;
    *) result=FAIL failed=1 ;;
  esac
  words=$(tail -n 1 "$out/$1.log" | cut -c 1-400)
  [ $status != 124 ] || words="no end after $2 s"
  printf '%4d s  %-10s %s  %s\n' $((SECONDS - began)) "$1" "$result" "$words"
  printf '%s\t%s\t%s\t%s\n' "$1" "$result" $((SECONDS - began)) "$words" >>"$out/results"
}
run machine 20
run engine 30
run doctor 30
run check 60
run dataset 60
run kernels 60
run bits 120
run near_cpu 60
run speed 150
run rival 150
run reference 40
run memory 20
run trace 40
run sanitizer 40
run health 10
helper report "$out" || failed=1
exit $failed
