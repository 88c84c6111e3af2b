#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the dependencies between folders, by the files that each object file really included.

Reads them from the compiler's dependency output, as ninja stores it.

usage: include_test.py BUILD_DIR SOURCE_DIR
"""

import os
import re
import subprocess
import sys
import unittest

# folder -> folders it may include from. tests/ may see everything.
ARROWS = {
    "base": {"base"},
    "model": {"base", "model"},
    "protocol": {"base", "protocol"},
    "storage": {"base", "storage"},
    "exchange": {"base", "protocol", "storage", "exchange"},
    "gossip": {"base", "protocol", "gossip"},
    "peer": {"base", "protocol", "storage", "exchange", "gossip", "peer"},
    "coordinator": {
        *("base", "model", "protocol", "storage", "exchange", "gossip", "peer", "coordinator")
    },
    "daemon": {"base", "protocol", "storage", "exchange", "gossip", "peer", "daemon"},
    "cli": {"base", "model", "protocol", "storage", "exchange", "gossip", "peer", "cli"},
    "dashboard": {
        *("base", "model", "protocol", "storage", "exchange", "gossip", "peer", "cli", "dashboard")
    },
    "diffusion": {"base", "model", "storage", "diffusion"},
    "engine": {"base", "model", "protocol", "storage", "diffusion", "engine"},
}
# Sees more than its folder: (file prefix) -> what it may not see all the same.
NO_ROCKSDB = ("diffusion", "engine", "protocol", "exchange", "gossip", "peer", "cli", "dashboard")
SHIPPED_BY_TORCH = re.compile(r"(^|/)(google/protobuf|fmt|spdlog)/")


def is_torch(path):
    return re.search(r"/(lib)?torch/include/|/include/(torch|ATen)/|/c10/", path) is not None


def complaints(source, dependencies):
    """source: a path within the tree; dependencies: paths within the tree, or absolute ones
    outside.
    """
    folder = source.split("/")[0]
    found = []
    inside = [d for d in dependencies if not d.startswith("/")]
    torch = [d for d in dependencies if is_torch(d)]
    rivals = [
        d
        for d in dependencies
        if not is_torch(d) and (SHIPPED_BY_TORCH.search(d) or d.endswith(".pb.h"))
    ]
    if torch and rivals:
        found.append(f"{source} sees both LibTorch ({torch[0]}) and {rivals[0]}, which collide")
    allowed = ARROWS.get(folder)
    if allowed is None:
        return found
    if source.endswith("_test.cc"):
        allowed = allowed | {"tests"}
    is_test = source.startswith("tests/") or source.endswith("_test.cc") or "/testing/" in source
    for path in inside:
        if "/testing/" in path and not is_test:
            found.append(f"{source} includes {path}, which only tests may include")
        if path.split("/")[0] not in allowed:
            found.append(
                f"{source} includes {path}: {folder} may include from "
                f"{', '.join(sorted(allowed))} only"
            )
    if folder in NO_ROCKSDB:
        for path in dependencies:
            if path.startswith("storage/rocksdb/") or "/include/rocksdb/" in path:
                found.append(f"{source} includes {path}: {folder} must not see RocksDB")
    return found


def room_complaints(page, read):
    """page: docs/internals/coordinator.md; read: a header's name -> its text.

    The page's arrows must match the references that rooms hold.
    """
    rooms = dict(re.findall(r"^\| `(\w+)` \| `([\w/]+\.h)` \|", page, re.M))
    drawn = {
        (a, b, arrow == "-.->")
        for a, arrow, b in re.findall(r"^  (\w+) (-->|-\.->) (\w+)$", page, re.M)
    }
    held = set()
    for room, header in rooms.items():
        for const, other in re.findall(r"^  (const )?(\w+)& \w+_;$", read(header), re.M):
            if other in rooms and (const or other != "EventLog"):
                held.add((room, other, bool(const)))
    words = {False: "calls", True: "reads"}
    return [
        f"{a} {words[reads]} {b}, which docs/internals/coordinator.md does not draw"
        for a, b, reads in sorted(held - drawn)
    ] + [
        f"docs/internals/coordinator.md draws that {a} {words[reads]} {b}, which it does not"
        for a, b, reads in sorted(drawn - held)
    ]


def read_dependencies(build, source_dir):
    """Yields (source, dependencies) of each compiled file of ours."""
    text = subprocess.run(
        ["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True
    ).stdout
    generated = os.path.join(os.path.realpath(build), "generated") + "/"
    root = os.path.realpath(source_dir) + "/"
    for block in text.split("\n\n"):
        lines = block.strip().splitlines()
        if not lines or ": #deps" not in lines[0] or "(STALE)" in lines[0]:
            continue
        paths = []
        for line in lines[1:]:
            path = line.strip()
            path = os.path.normpath(
                path if path.startswith("/") else os.path.join(os.path.realpath(build), path)
            )
            if path.startswith(generated):
                path = path[len(generated) :]
            elif path.startswith(os.path.realpath(build) + "/"):
                continue
            elif path.startswith(root):
                path = path[len(root) :]
            paths.append(path)
        source = next((p for p in paths if p.endswith((".cc", ".cu"))), None)
        if source and not source.startswith("/"):
            yield source, paths


class Rules(unittest.TestCase):
    def test_allowed(self):
        self.assertEqual(
            complaints(
                "coordinator/core/core.cc",
                ["coordinator/core/core.cc", "base/ids.h", "protocol/skerry.pb.h"],
            ),
            [],
        )

    def test_coordinator_reaches_daemon(self):
        self.assertEqual(
            len(
                complaints(
                    "coordinator/core/core.cc", ["coordinator/core/core.cc", "daemon/core/core.h"]
                )
            ),
            1,
        )

    def test_diffusion_reaches_protocol(self):
        self.assertEqual(
            len(
                complaints(
                    "diffusion/model/model.cc", ["diffusion/model/model.cc", "protocol/limits.h"]
                )
            ),
            1,
        )

    def test_only_tests_see_what_tests_share(self):
        self.assertEqual(
            complaints(
                "daemon/host/host_test.cc",
                ["daemon/host/host_test.cc", "tests/fake_engine/chain.h"],
            ),
            [],
        )
        self.assertEqual(
            len(
                complaints(
                    "daemon/host/host.cc", ["daemon/host/host.cc", "tests/fake_engine/chain.h"]
                )
            ),
            1,
        )

    def test_only_tests_see_testing(self):
        for source, most in (
            ("storage/store.cc", 1),
            ("storage/store_test.cc", 0),
            ("storage/testing/memory_store.cc", 0),
        ):
            found = complaints(source, [source, "storage/testing/memory_store.h"])
            self.assertEqual(len(found), most)

    def test_torch_beside_protobuf(self):
        torch = "/x/site-packages/torch/include/torch/torch.h"
        self.assertEqual(
            len(
                complaints(
                    "engine/a.cc", ["engine/a.cc", torch, "/usr/include/google/protobuf/message.h"]
                )
            ),
            1,
        )
        self.assertEqual(
            len(complaints("tests/a.cc", ["tests/a.cc", torch, "/usr/include/spdlog/spdlog.h"])), 1
        )
        self.assertEqual(complaints("engine/a.cc", ["engine/a.cc", torch]), [])
        other = "/opt/libtorch/include/ATen/ATen.h"
        self.assertEqual(
            len(
                complaints(
                    "engine/a.cc", ["engine/a.cc", other, "/usr/include/google/protobuf/message.h"]
                )
            ),
            1,
        )
        self.assertEqual(
            complaints("engine/a.cc", ["engine/a.cc", other, "/opt/libtorch/include/fmt/core.h"]),
            [],
        )

    def test_rocksdb_stays_in_its_room(self):
        self.assertEqual(
            len(complaints("diffusion/a.cc", ["diffusion/a.cc", "/usr/include/rocksdb/db.h"])), 1
        )

    def test_rooms_are_as_drawn(self):
        page = (
            "  A --> B\n  A -.-> C\n| `A` | `a.h` | x |\n| `B` | `b.h` | x |\n| `C` | `c.h` | x |\n"
        )
        headers = {"a.h": "  B& b_;\n  const C& c_;\n", "b.h": "", "c.h": ""}
        self.assertEqual(room_complaints(page, headers.get), [])
        headers["c.h"] = "  B& b_;\n"
        self.assertEqual(len(room_complaints(page, headers.get)), 1)
        headers["a.h"] = "  B& b_;\n"
        self.assertEqual(len(room_complaints(page, headers.get)), 2)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build_dir, source_root = sys.argv[1:]
    result = unittest.TextTestRunner(verbosity=0).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Rules)
    )
    if not result.wasSuccessful():
        sys.exit(1)

    def read_file(*parts):
        with open(os.path.join(source_root, *parts), encoding="utf-8") as file:
            return file.read()

    files, problems = 0, room_complaints(
        read_file("docs", "internals", "coordinator.md"),
        lambda header: read_file("coordinator", header),
    )
    for file, includes in read_dependencies(build_dir, source_root):
        files += 1
        problems += complaints(file, includes)
    print("\n".join(problems))
    if files == 0:
        sys.exit(f"no compiled file of ours in {build_dir}: build first")
    print(f"{files} files, {len(problems)} forbidden includes")
    sys.exit(1 if problems else 0)
