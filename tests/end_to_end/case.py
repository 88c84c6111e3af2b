# SPDX-License-Identifier: Apache-2.0
"""Base of the end-to-end tests: the programs' paths, and clusters that are always torn down."""

import os
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cluster import Cluster, Failure  # noqa: E402,F401

BIN = pathlib.Path(os.environ.get("SKERRY_BIN", "build/bin")).resolve()
FAKE_ENGINE = BIN / "skerry-fake-engine"
needs_engine = unittest.skipUnless(
    (BIN / "skerry-engine").exists(), "this build has no engine (SKERRY_ENGINE)"
)


class EndToEnd(unittest.TestCase):
    def cluster(self, fake=True, **arguments):
        """The fake engine trains fast and deterministically, for tests that do not test the engine.
        """
        made = Cluster(BIN, engine=FAKE_ENGINE if fake else None, **arguments)
        self.addCleanup(self._close, made)
        return made

    def trained(self, it, run, step):
        """The bytes of its experts at that step, as hashes: weights, moments and means."""
        objects = [
            o
            for o in it.items("chunk", "list", run, "--chunks")
            if o["kind"] == "checkpoint" and o["step"] == step
        ]
        self.assertEqual(len(objects), 2)
        return {o["expert"]: sorted(chunk["chunk"] for chunk in o["chunks"]) for o in objects}

    def _close(self, made):
        failed = (
            any(error for _, error in self._outcome.errors)
            if hasattr(self._outcome, "errors")
            else False
        )
        made.__exit__(Failure if failed else None)
