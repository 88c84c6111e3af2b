#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a copy of the sources with bugs planted in it.

usage: plant.py FOLDER          copies the tree to FOLDER and applies every patch
       plant.py --write FOLDER  writes the patches anew from such a copy
       plant.py --check         fails if a patch no longer applies or lacks a bug

Each patch of tests/planted is for one source file. It adds places that ask
`planted("name")`, where tests/planted/planted.h lists the name.

To plant a bug or repair a patch: run `plant.py FOLDER`, edit the copy, run
`plant.py --write FOLDER`. A patch that fails leaves FILE.rej in the copy.
"""
import argparse
import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATCHES = ROOT / "tests/planted"
LIST = "tests/planted/planted.h"
MARK = "PLANTED"  # what CMakeLists.txt expects of a planted copy


def tracked():
    """The files of the tree, also those that are not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [n for n in set(listed.stdout.split("\0")) if n and (ROOT / n).is_file()]


def patch_of(name):
    return PATCHES / (name.replace("/", ".") + ".patch")


def source_of(patch):
    return re.search(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)[1]


def apply(patch, folder):
    """Why the patch does not apply; empty if it does."""
    done = subprocess.run(
        ["patch", "-p1", "-F0", "--no-backup-if-mismatch", "-s", "-i", str(patch)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else f"{patch.name}: {(done.stdout + done.stderr).strip()}"


def put(source, target):
    """Copies a file, unless the target holds these bytes: a build goes by times."""
    if target.is_file() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def plant(folder):
    problems = []
    names = tracked()
    with tempfile.TemporaryDirectory() as made:
        for patch in sorted(PATCHES.glob("*.patch")):
            name = source_of(patch)
            if name not in names:
                problems.append(f"{patch.name}: there is no file {name}")
                continue
            copy = pathlib.Path(made, name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy)
            if problem := apply(patch, made):
                problems.append(problem)
        for name in names:
            copy = pathlib.Path(made, name)
            put(copy if copy.is_file() else ROOT / name, folder / name)
        for rejected in pathlib.Path(made).rglob("*.rej"):
            put(rejected, folder / rejected.relative_to(made))
    (folder / MARK).touch()
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and name != MARK and name not in names and path.suffix != ".rej":
            path.unlink()
    return problems


def write(folder):
    for patch in PATCHES.glob("*.patch"):
        patch.unlink()
    for name in sorted(tracked()):
        copy = folder / name
        if name.startswith("tests/planted/") or not copy.is_file():
            continue
        before, after = (ROOT / name).read_bytes(), copy.read_bytes()
        if before != after:
            lines = [text.decode().splitlines(keepends=True) for text in (before, after)]
            diff = difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", n=2)
            patch_of(name).write_text("".join(diff))


def names_lacking(folder):
    """Bugs of the list that no source asks for, and names that are not on it."""
    listed = set(re.findall(r'^    \{"(\w+)",', (folder / LIST).read_text(), re.MULTILINE))
    asked = set()
    for path in folder.rglob("*"):
        if path.suffix in (".cc", ".h"):
            asked |= set(re.findall(r'\bplanted\("(\w+)"\)', path.read_text()))
    # The header's own comment asks for "name".
    return sorted(listed - asked), sorted(asked - listed - {"name"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    arguments = parser.parse_args()
    if (arguments.folder is None) != arguments.check:
        parser.error("expected FOLDER or --check")
    if arguments.write:
        write(arguments.folder)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or pathlib.Path(scratch)
        problems = plant(folder)
        if not problems:
            unasked, unlisted = names_lacking(folder)
            problems = [f"no source asks for the bug {name}" for name in unasked]
            problems += [f"{LIST} does not list the bug {name}" for name in unlisted]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print("see `tests/planted/plant.py --help`", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
