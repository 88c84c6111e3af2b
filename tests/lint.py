#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy on sources, and remembers which ones it found clean.

A source counts as clean while nothing changes that clang-tidy reads of this
project: the source, the headers it includes, the protocol files and the checks.

usage: lint.py --build BUILD_FOLDER --cache FOLDER [--since COMMIT] [--minutes M] [FILE …]
without FILE: every product source of BUILD_FOLDER's compile commands
--since: of them, those that differ from COMMIT, or include what does
--minutes: begins with what was committed last, and leaves what it does not reach
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

INCLUDE = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)
NOISE = re.compile(r"^\d+ warnings? (generated|treated)|^Suppressed |^Use -header-filter")


def closure(source, known):
    """The source and the project's headers that it includes, in turn."""
    found, to_read = set(), [source]
    while to_read:
        path = to_read.pop()
        if path in found:
            continue
        found.add(path)
        if path not in known:
            names = INCLUDE.findall(pathlib.Path(path).read_bytes())
            known[path] = [n for n in map(os.fsdecode, names) if os.path.exists(n)]
        to_read += known[path]
    return found


def digest(paths):
    whole = hashlib.sha256()
    for path in sorted(paths):
        content = pathlib.Path(path).read_bytes()
        whole.update(f"{path} {len(content)}\n".encode() + content)
    return whole


def changed_since(commit):
    command = ["git", "diff", "--name-only", commit]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"./dev lint: --since {commit}: {ran.stderr.strip()}")
    return set(ran.stdout.splitlines())


def newest_first(files):
    """Of two files, the one that a later commit changed comes first."""
    command = ["git", "log", "--format=", "--name-only", "--no-renames"]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ages = {}
    for age, name in enumerate(log):
        ages.setdefault(name, age)
    return sorted(files, key=lambda each: ages.get(each, 0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--cache", required=True, type=pathlib.Path)
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("files", nargs="*")
    asked = parser.parse_args()

    with open(f"{asked.build}/compile_commands.json") as file:
        commands = {os.path.relpath(each["file"]): each["command"] for each in json.load(file)}
    files = asked.files or sorted(
        each
        for each in commands
        if not each.startswith(("tests/", "build")) and not each.endswith("_test.cc")
    )
    missing = [each for each in files if each not in commands]
    if missing:
        sys.exit(f"./dev lint: {asked.build} does not compile {missing[0]}")

    version = subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout
    protocols = [str(each) for each in pathlib.Path().glob("[a-z]*/*.proto")]
    known, marks = {}, {}
    if asked.since:
        changed = changed_since(asked.since)
        files = [each for each in files if changed & closure(each, known)]
    for each in files:
        whole = digest([*closure(each, known), *protocols, ".clang-tidy"])
        whole.update(version + commands[each].replace(os.getcwd(), ".").encode())
        marks[each] = asked.cache / whole.hexdigest()
    fresh = newest_first(each for each in files if not marks[each].exists())
    end = time.monotonic() + 60 * asked.minutes
    asked.cache.mkdir(parents=True, exist_ok=True)

    def check(file):
        if time.monotonic() > end:
            return file, None
        tidy = ["clang-tidy", "-p", asked.build, "--quiet", file]
        ran = subprocess.run(tidy, capture_output=True, text=True)
        if ran.returncode == 0:
            marks[file].touch()
        return file, ran

    failed, left = 0, 0
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for number, (file, ran) in enumerate(pool.map(check, fresh), 1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(fresh)}", end="\r", file=sys.stderr)
            if ran is None:
                left += 1
            if ran is None or ran.returncode == 0:
                continue
            failed += 1
            words = [line for line in ran.stderr.splitlines() if not NOISE.match(line)]
            print(ran.stdout, *words, sep="\n")
    if failed:
        sys.exit(f"./dev lint: clang-tidy found something in {failed} of {len(files)} files")
    checked = f"{len(fresh) - left} of them checked now"
    print(f"clang-tidy finds nothing in {len(files) - left} files, {checked}")
    if left:
        print(f"{left} files were not reached in {asked.minutes:g} minutes")


if __name__ == "__main__":
    main()
