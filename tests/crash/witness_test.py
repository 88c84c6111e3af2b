#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of the crash test can fail."""

import unittest

import witness


def event(number, kind, expert, step, epoch, before=None):
    """At `number` seconds of 1970."""
    reason = "" if before is None else f"steps {before} to {step}, loss 1"
    return {
        "number": number,
        "time": f"1970-01-01T00:00:{number:02}.000Z",
        "kind": kind,
        "run": "run",
        "expert": expert,
        "step": step,
        "epoch": epoch,
        "reason": reason,
    }


GOOD = [
    event(1, "granted", 0, 0, 5),
    event(2, "committed", 0, 10, 5, 0),
    event(3, "granted", 0, 10, 6),
    event(4, "committed", 0, 20, 6, 10),
]


class WitnessTest(unittest.TestCase):
    def told(self, *lines):
        made = witness.Witness()
        for line in lines:
            made.read("one", "2026-01-01T00:00:00.000 info skerryd r-1/0: " + line)
        return made

    def test_only_an_answer_is_an_acknowledgement(self):
        made = self.told(
            "committing steps 0 to 10", "committed step 10", "committing steps 10 to 20"
        )
        self.assertEqual(
            {expert: set(steps) for expert, steps in made.snapshot().items()}, {0: {10}}
        )
        self.assertEqual(len(made.in_flight({"one"}, 0)), 1)
        self.assertEqual(made.in_flight({"two"}, 0), {})
        made.started("one")
        self.assertEqual(made.in_flight({"one"}, 0), {})

    def test_what_is_dropped_is_not_in_flight(self):
        made = self.told(
            "committing steps 0 to 10",
            "fenced: another epoch is current; 10 uncommitted steps dropped",
        )
        self.assertEqual(made.in_flight({"one"}, 0), {})

    def test_an_acknowledged_step_that_is_not_known(self):
        self.assertEqual(witness.lost({0: {10: 2.5, 20: 4.5}}, GOOD, "run"), [])
        self.assertEqual(len(witness.lost({0: {10: 2.5, 20: 4.5, 30: 9}}, GOOD, "run")), 1)
        self.assertEqual(len(witness.lost({1: {10: 2.5}}, GOOD, "run")), 1)

    def test_an_acknowledged_step_that_was_lost_and_trained_again(self):
        self.assertEqual(len(witness.lost({0: {10: 2.5, 20: 3.5}}, GOOD, "run")), 1)

    def test_the_first_acknowledgement_counts(self):
        made = self.told("committed step 10")
        first = made.snapshot()
        made.read("two", "2026-01-01T00:00:00.000 info skerryd r-1/0: committed step 10")
        self.assertEqual(made.snapshot(), first)

    def test_an_acknowledged_checkpoint_that_is_not_on_the_disk(self):
        disk = [{"expert": 0, "step": step} for step in (20, 30, 40)]
        self.assertEqual(witness.lost_on_disk({0: {10, 40}}, disk, 3), [])
        self.assertEqual(
            witness.lost_on_disk({0: {10}}, disk, 3), [], "three later ones took its place"
        )
        self.assertEqual(len(witness.lost_on_disk({0: {10}}, disk[:2], 3)), 1)
        self.assertEqual(len(witness.lost_on_disk({0: {50}}, disk, 3)), 1)

    def test_rules_of_events(self):
        self.assertEqual(witness.broken_rules(GOOD, "run", 1), [])
        for wrong in (
            GOOD[:2] + [event(3, "granted", 0, 10, 5)],  # an epoch twice
            GOOD[:2] + [event(3, "committed", 0, 20, 4, 10)],  # a commit of an old epoch
            GOOD[:2] + [event(3, "committed", 0, 10, 5, 0)],  # the same span twice
            GOOD[:2] + [event(3, "committed", 0, 30, 5, 20)],  # a gap
            [GOOD[1], GOOD[0]],
        ):
            self.assertNotEqual(witness.broken_rules(wrong, "run", 1), [], wrong)


if __name__ == "__main__":
    unittest.main()
