#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: completions.sh SKERRY FOLDER. Writes the completions of a package.
set -eu
mkdir -p "$2"
"$1" completion bash >"$2/skerry"
"$1" completion fish >"$2/skerry.fish"
# zsh loads the file at the first tab, which is to complete already.
{
  echo '#compdef skerry'
  "$1" completion zsh
  echo '_bash_complete -o default -F _skerry'
} >"$2/_skerry"
