#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the syntax of every source that includes LibTorch against another LibTorch's headers.

It remembers which sources passed, while nothing changes that the compiler reads of this project.

usage: syntax.py --build BUILD_FOLDER --torch FOLDER --cache FOLDER [FILE …]
BUILD_FOLDER: configured with the LibTorch in FOLDER; nothing is built in it
without FILE: every source of its compile commands that includes LibTorch
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

from lint import closure, digest

# It loads a precompiled header as far as a source needs it; g++ loads all.
COMPILER = ["clang++", "-Xclang", "-fno-pch-timestamp"]


def flags_of(command):
    """Of a compile command what makes a source well-formed or not: no output, no optimisation."""
    words, flags = shlex.split(command), []
    for word, value in zip(words, words[1:]):
        if word == "-isystem":
            flags += [word, value]
        elif word.startswith(("-I", "-D", "-std", "-W")) and word != "-Winvalid-pch":
            flags.append(word)
    return flags


def run(words):
    return subprocess.run(words, capture_output=True, text=True)


def precompile(flags, torch, cache, version):
    """The precompiled torch.h, made unless there is one."""
    common = [each for each in flags if each.startswith(("-std", "-W"))]
    for folder in ("include", "include/torch/csrc/api/include"):
        common += ["-isystem", f"{torch}/{folder}"]
    mark = digest([f"{torch}/version.py"])
    mark.update(version + " ".join(common).encode())
    made = cache / f"{mark.hexdigest()}.pch"
    if not made.exists():
        header = cache / "torch.h"
        header.write_text("#include <torch/torch.h>\n")
        ran = run([*COMPILER, *common, "-x", "c++-header", str(header), "-o", f"{made}.new"])
        if ran.returncode != 0:
            sys.exit(f"./dev syntax: the headers in {torch} do not compile:\n{ran.stderr}")
        for old in cache.glob("*.pch"):
            old.unlink()
        os.rename(f"{made}.new", made)
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--cache", required=True, type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()

    with open(f"{asked.build}/compile_commands.json") as file:
        commands = {
            os.path.relpath(each["file"]): flags_of(each["command"])
            for each in json.load(file)
            if "cmake_pch.hxx " in each["command"] and not each["file"].endswith(".hxx.cxx")
        }
    files = asked.files or sorted(commands)
    missing = [each for each in files if each not in commands]
    if missing:
        sys.exit(f"./dev syntax: {asked.build} compiles no {missing[0]} with LibTorch")

    version = subprocess.run([COMPILER[0], "--version"], capture_output=True, check=True).stdout
    known, marks = {}, {}
    for each in files:
        whole = digest([*closure(each, known), f"{asked.torch}/version.py"])
        whole.update(version + " ".join(commands[each]).replace(os.getcwd(), ".").encode())
        marks[each] = asked.cache / whole.hexdigest()
    fresh = [each for each in files if not marks[each].exists()]
    asked.cache.mkdir(parents=True, exist_ok=True)
    header = precompile(commands[fresh[0]], asked.torch, asked.cache, version) if fresh else None

    def check(file):
        words = ["-include-pch", str(header), "-fsyntax-only", file]
        ran = run([*COMPILER, *commands[file], *words])
        if ran.returncode == 0:
            marks[file].touch()
        return ran

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for ran in pool.map(check, fresh):
            if ran.returncode != 0:
                failed += 1
                print(ran.stderr)
    if failed:
        sys.exit(
            f"./dev syntax: {failed} of {len(files)} files do not compile with the LibTorch in "
            f"{asked.torch}"
        )
    print(
        f"{len(files)} files compile with the headers in {asked.torch}, "
        f"{len(fresh)} of them checked now"
    )


if __name__ == "__main__":
    main()
