#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A node offers the cards that CUDA shows, in CUDA's order, and gives each engine its own.

The driver's library is a fake (tests/fake_cuda), which dlopen finds by LD_LIBRARY_PATH. There is no
libnvidia-ml: no program of ours opens it.
"""

import json
import os
import re
import signal
import subprocess
import unittest

from case import BIN, EndToEnd
from cluster import Process

FAKE_CUDA = os.environ["SKERRY_FAKE_CUDA"]
FAST, SLOW = "aaaaaaaa-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"
SLICES = "cccccccc-0000-0000-0000-000000000003", "dddddddd-0000-0000-0000-000000000004"
GIB = 1 << 30


def machine(*cards):
    return ";".join("|".join(map(str, card)) for card in cards)


# CUDA puts the faster card first; the bus has it second.
UNLIKE = machine(
    ("Fast card", FAST, 80 * GIB, "9.0", "0b", ""), ("Slow card", SLOW, 16 * GIB, "7.0", "07", "")
)
LIKE = machine(
    *(("Fast card", uuid, 80 * GIB, "9.0", bus, "") for uuid, bus in ((FAST, "07"), (SLOW, "0b")))
)
SLICED = machine(*(("A100 MIG 1g.10gb", uuid, 10 * GIB, "8.0", "07", FAST) for uuid in SLICES))


class Cards(EndToEnd):
    def setUp(self):
        self.made = self.cluster()
        self.made.start_coordinator()

    def environment(self, cards, **more):
        return {
            "LD_LIBRARY_PATH": FAKE_CUDA,
            "SKERRY_FAKE_CARDS": cards,
            "SKERRY_FAKE_STEP_MS": "2",
            **more,
        }

    def slots(self, cards, args=(), **more):
        """What the coordinator knows of a node on such a machine: names and memory."""
        self.made.start_daemon("node", env=self.environment(cards, **more), args=args)
        (node,) = self.made.items("node", "list")
        return [
            (slot["device"], slot["memory_bytes"])
            for slot in self.made.json("node", "show", node["name"])["slots"]
        ]

    def trained_on(self):
        """The device of each engine, once both experts of a run have been trained."""
        self.made.add_dataset()
        self.made.create_run("run")
        self.made.wait_run("run")
        return self.devices()

    def devices(self):
        log = self.made.daemons["node"].log_text()
        return {
            line.split("training on ")[1].split(" from step")[0]
            for line in log.splitlines()
            if "training on " in line
        }

    def test_unlike_cards_keep_their_names_and_engines_see_one_each(self):
        self.assertEqual(self.slots(UNLIKE), [("Fast card", 80 * GIB), ("Slow card", 16 * GIB)])
        self.assertEqual(self.trained_on(), {f"device 0 of GPU-{FAST}", f"device 0 of GPU-{SLOW}"})

    def test_two_like_cards_train_one_expert(self):
        both = [("Fast card", 80 * GIB)] * 2
        self.assertEqual(self.slots(LIKE, SKERRY_FAKE_STEP_MS="40"), both)
        self.made.add_dataset()
        self.made.create_run("run", schedule={"cards_per_expert": 2})

        def cards():
            return [expert["cards"] for expert in self.made.json("run", "show", "run")["experts"]]

        # The other expert waits its turn: a lease keeps its number of cards.
        self.made.wait(lambda: sorted(cards()) == [0, 2], "a lease of two cards")
        self.made.wait_run("run")
        self.assertEqual(self.devices(), {f"device 0 of GPU-{FAST},GPU-{SLOW}"})

    def test_a_card_that_is_lost_leaves_its_expert_on_the_others(self):
        driver, lost = self.made.root / "driver", self.made.root / "lost"
        self.slots(
            LIKE,
            SKERRY_FAKE_STEP_MS="40",
            SKERRY_FAKE_DRIVER=str(driver),
            SKERRY_FAKE_LOST_CARD=str(lost),
        )
        self.made.add_dataset(partitions=1)
        self.made.create_run("run", train={"steps": 300}, schedule={"cards_per_expert": 2})
        self.made.wait_event(kind="committed", count=2)
        # The driver shows it no more; then the engine meets that.
        driver.write_text(f"SKERRY_FAKE_CARDS={LIKE.split(';')[0]}\n")
        lost.write_text(f"GPU-{SLOW}")
        self.made.wait_run("run")
        log = self.made.daemons["node"].log_text()
        self.assertRegex(log, "a card has fallen off the bus")
        starts = re.findall(r"training on device 0 of (\S+) from step (\d+)", log)
        self.assertEqual([cards for cards, _ in starts], [f"GPU-{FAST},GPU-{SLOW}", f"GPU-{FAST}"])
        # Of what was stored nothing is trained again.
        stored = [
            int(re.search(r"to (\d+),", event["reason"])[1])
            for event in self.made.events(kind="committed")
        ]
        self.assertGreaterEqual(int(starts[1][1]), stored[1])
        self.assertIn(int(starts[1][1]), stored)
        # The lease kept its epoch. Nobody is given the slot of the lost card.
        self.assertEqual(len(self.made.events(kind="granted")), 1)
        _, gone = self.made.json("node", "show", "node")["slots"]
        self.assertEqual(gone["phase"], "failed")

    def test_the_order_of_the_bus_where_asked_for(self):
        self.assertEqual(
            self.slots(UNLIKE, CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_VISIBLE_DEVICES="0"),
            [("Slow card", 16 * GIB)],
        )

    def test_the_start_of_a_uuid_names_its_card(self):
        self.assertEqual(
            self.slots(UNLIKE, CUDA_VISIBLE_DEVICES="GPU-aaaa"), [("Fast card", 80 * GIB)]
        )

    def test_a_list_ends_at_what_names_no_card(self):
        self.assertEqual(
            self.slots(UNLIKE, CUDA_VISIBLE_DEVICES="1,GPU-eeee,0"), [("Slow card", 16 * GIB)]
        )

    def test_a_slice_has_its_own_memory(self):
        self.assertEqual(self.slots(SLICED), [("A100 MIG 1g.10gb", 10 * GIB)])
        self.assertEqual(self.trained_on(), {f"device 0 of MIG-{SLICES[0]}"})
        self.assertRegex(
            self.made.daemons["node"].log_text(), "one slice of a MIG card.*nvidia-smi -L"
        )

    def test_slices_that_are_named_are_a_slot_each(self):
        names = [f"MIG-{uuid}" for uuid in SLICES]
        self.assertEqual(
            self.slots(SLICED, CUDA_VISIBLE_DEVICES=",".join(names)),
            2 * [("A100 MIG 1g.10gb", 10 * GIB)],
        )
        self.assertEqual(self.trained_on(), {f"device 0 of {name}" for name in names})

    def test_slots_of_one_card_share_its_memory(self):
        self.assertEqual(
            self.slots(UNLIKE, args=["--slots", "3"]),
            [("Fast card", 40 * GIB), ("Slow card", 16 * GIB), ("Fast card", 40 * GIB)],
        )

    def test_a_card_that_falls_off_leaves_its_expert_to_the_other(self):
        driver, lost = self.made.root / "driver", self.made.root / "lost"
        driver.write_text(f"SKERRY_FAKE_CARDS={LIKE}\n")
        files = {"SKERRY_FAKE_DRIVER": str(driver), "SKERRY_FAKE_LOST_CARD": str(lost)}
        self.slots("", **files)
        self.made.add_dataset(partitions=1)
        self.made.create_run("run", schedule={"cards_per_expert": 2}, train={"steps": 1000000})
        self.made.wait_event(kind="committed", run="run")
        driver.write_text(f"SKERRY_FAKE_CARDS={LIKE}\nSKERRY_FAKE_CUDA_BAD=0\n")
        lost.write_text(f"GPU-{FAST}")
        self.made.wait(
            lambda: f"device 0 of GPU-{SLOW}" in self.devices(),
            "an engine on the card that is left",
            self.made.daemons["node"],
        )
        step = self.made.experts("run")[0]["step"]
        self.made.wait(
            lambda: self.made.experts("run")[0]["step"] > step + 10,
            "commits from it",
            self.made.daemons["node"],
        )
        self.assertEqual(self.made.events(kind="lease_lost"), [])
        self.assertRegex(
            self.made.daemons["node"].log_text(), "slot 0.*its card is lost; nothing is trained"
        )

    # ---- skerry doctor

    def doctor(self, status, **environment):
        done = subprocess.run(
            [BIN / "skerry", "doctor", "-o", "json"],
            env={
                **os.environ,
                **self.made.cli_env(),
                "SKERRY_ENGINE": str(self.made.engine),
                **self.environment(UNLIKE, **environment),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, status, done.stderr + done.stdout)
        return {item["name"]: item for item in json.loads(done.stdout)["items"]}

    def test_doctor_tries_each_card(self):
        checks = self.doctor(0)
        self.assertRegex(checks["gpu"]["found"], f"Fast card.*GPU-{FAST}.*Slow card.*GPU-{SLOW}")
        self.assertEqual(checks["training"]["found"], "one step on each of 2 cards")
        checks = self.doctor(8, SKERRY_FAKE_CANNOT_TRAIN="GPU-bbbb")
        self.assertIn("cannot train on Slow card", checks["training"]["found"])
        self.assertIn(f"CUDA_VISIBLE_DEVICES=GPU-{FAST}", checks["training"]["todo"])

    def test_doctor_fails_where_no_card_can_be_used(self):
        checks = self.doctor(8, SKERRY_FAKE_CUDA_INIT="802")
        self.assertIn("CUDA_ERROR_SYSTEM_NOT_READY", checks["gpu"]["found"])
        checks = self.doctor(8, SKERRY_FAKE_VERSION="skerry-engine 1 (no CUDA device)")
        self.assertEqual(checks["gpu"]["status"], "failed")

    # ---- a start that does not go well

    def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed(self):
        driver = "mount -t tmpfs none /sys/module && mkdir /sys/module/nvidia && "
        driver += "echo 550.54.14 >/sys/module/nvidia/version && exec "
        apart = ["unshare", "--mount", "sh", "-c", driver + '"$@"', "sh"]
        if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
            self.skipTest("needs a mount namespace")
        token = self.made.json("token", "create", "--role", "node")["token"]
        words = ["join", token, "--data", self.made.root / "node", "--engine", self.made.engine]
        environment = self.environment(
            UNLIKE, SKERRY_FAKE_VERSION="engine (LibTorch 2.11.0 for CUDA 13.0, no CUDA device)"
        )
        self.made.daemons["node"] = Process(
            "node", [*apart, BIN / "skerryd", *words], self.made.root / "node.log", environment
        )
        daemon = self.made.daemons["node"]
        self.assertEqual(daemon.popen.wait(300), 78, daemon.tail())
        lines = daemon.log_text().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(
            lines[0], "driver 550.54.14, .*CUDA 13.0 needs 580.65 or newer: rent a machine"
        )

    def join(self, **environment):
        self.token = self.made.json("token", "create", "--role", "node", "--uses", "1")["token"]
        return self.made.join(self.token, "node", env=environment)

    def refused(self, status, **environment):
        daemon = self.join(**environment)
        self.assertEqual(daemon.popen.wait(300), status, daemon.tail())
        self.assertEqual(self.made.items("node", "list"), [])
        return daemon.log_text()

    def test_a_card_that_cannot_train_is_named_before_the_token_is_spent(self):
        words = self.refused(78, **self.environment(UNLIKE, SKERRY_FAKE_CANNOT_TRAIN="GPU-bbbb"))
        self.assertRegex(
            words,
            f"cannot train on Slow card \\(GPU-{SLOW}, compute capability 7.0\\): "
            "expected one training step, found: CUDA error: no kernel image",
        )
        self.assertIn(f"CUDA_VISIBLE_DEVICES=GPU-{FAST}", words)
        # What it says to do, with the same token.
        self.made.join(
            self.token,
            "node",
            env=self.environment(
                UNLIKE, SKERRY_FAKE_CANNOT_TRAIN="GPU-bbbb", CUDA_VISIBLE_DEVICES=f"GPU-{FAST}"
            ),
        )
        self.made.wait(
            lambda: self.made.items("node", "list"), "it to join", self.made.daemons["node"]
        )

    def test_later_starts_take_no_step(self):
        self.slots(UNLIKE)
        first = self.made.daemons["node"]
        first.kill()
        broken = self.environment(UNLIKE, SKERRY_FAKE_CANNOT_TRAIN="GPU-")
        again = self.made.start_daemon("node", env=broken)
        self.made.wait(lambda: again.log_text().count(" running") == 2, "it to run again", again)

    def test_cuda_that_is_not_ready_is_tried_again(self):
        words = self.refused(75, **self.environment(UNLIKE, SKERRY_FAKE_CUDA_INIT="802"))
        self.assertRegex(words, "CUDA_ERROR_SYSTEM_NOT_READY")

    def test_sigterm_ends_the_wait_for_a_driver_that_hangs(self):
        reached = self.made.root / "reached"
        daemon = self.join(
            **self.environment(
                UNLIKE, SKERRY_FAKE_CUDA_INIT="hang", SKERRY_FAKE_CUDA_REACHED=str(reached)
            )
        )
        self.made.wait(reached.exists, "the driver to hang", daemon)
        daemon.signal(signal.SIGTERM)
        self.assertEqual(daemon.popen.wait(300), 0, daemon.tail())


if __name__ == "__main__":
    unittest.main()
