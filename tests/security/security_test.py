#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks on the real programs are refused and cost bounded memory.

Tests the claims of docs/internals/security.md, by their names.
"""

import os
import pathlib
import resource
import struct
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "end_to_end")]
import attacker  # noqa: E402
from attacker import (
    Context,
    Key,
    Token,
    fields,
    heartbeat,
    hello,
    message,
    request,
    wait,
)  # noqa: E402
from case import BIN, EndToEnd  # noqa: E402
from cluster import Process, free_ports  # noqa: E402

BAD_CONFIGURATION = 78
GROWTH_MIB = 64  # generous: what a flood may cost the coordinator
FENCED, REFUSED = 3, 5


class Attacked(EndToEnd):
    def setUp(self):
        self.it = self.cluster()
        self.it.start_coordinator()
        self.context = self.enterContext(Context())
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
        )

    def token(self, role="node", uses=1):
        return Token(self.it.json("token", "create", "--role", role, "--uses", uses)["token"])

    def dial(self, endpoint, token, key):
        return self.context.dealer(token.endpoints[endpoint], token.server, key)

    def member(self, name, role="node"):
        """A key that is rostered, and its connection after Hello."""
        token = self.token(role)
        key = attacker.enrolled(self.context, token, name)
        peer = self.dial("control", token, key)
        answer = peer.ask(
            hello()
            if role == "node"
            else request(2, message((1, attacker.VERSION), (2, "attacker")))
        )
        self.assertIn(3, answer, answer)
        return token, key, peer

    def assert_refused(self, answer, code="unauthorised"):
        self.assertIn(2, answer, answer)
        error = fields(answer[2][0])
        self.assertEqual(error[1][0].decode(), code, error[2][0].decode())

    def assert_told(self, why, node=""):
        """Who was turned away is an event."""

        def found():
            return next(
                (
                    e
                    for e in self.it.events(kind="turned_away", node=node or None)
                    if why in e["reason"]
                ),
                None,
            )

        return self.it.wait(
            found,
            f"the event that {node or 'a stranger'} was turned away: {why}",
            self.it.coordinator,
        )

    def assert_serves(self):
        self.assertIsNotNone(self.it.try_json("node", "list"))

    def bounded(self, mib=GROWTH_MIB):
        """A context in which the coordinator's memory grows by less than the bound."""
        return Bounded(self, mib)


class Bounded:
    def __init__(self, case, mib):
        self.case, self.pid, self.mib = case, case.it.coordinator.pid, mib

    def __enter__(self):
        # Of its peak: that of an earlier flood is not this one's.
        self.before = attacker.peak_mib(self.pid)

    def __exit__(self, kind, *_):
        if kind is None and not os.environ.get(
            "SKERRY_SANITIZE"
        ):  # a sanitizer takes more than a program does
            grown = attacker.peak_mib(self.pid) - self.before
            self.case.assertLess(
                grown,
                self.mib,
                f"the coordinator grew from {self.before:.0f} MiB by {grown:.0f} MiB",
            )


class Keys(Attacked):
    def test_unknown_key(self):
        token = self.token()
        for endpoint in ("control", "blob"):
            peer = self.dial(endpoint, token, Key())
            peer.wait_for(attacker.REFUSED_KEY)
            self.assertNotIn(attacker.HANDSHAKE_DONE, peer.look())
            self.assertIn(
                "127.0.0.1", self.assert_told(f"{endpoint}: its key is not known")["reason"]
            )

    def test_revoked_key(self):
        token, key, peer = self.member("mallory")
        self.it.run("node", "revoke", "mallory")
        peer.wait_for(attacker.DISCONNECTED)
        self.dial("control", token, key).wait_for(attacker.REFUSED_KEY)
        self.dial("blob", token, key).wait_for(attacker.REFUSED_KEY)
        self.assert_told("blob: its key is not known", node="mallory")
        again = self.dial("enrol", token, key).ask(attacker.enrol_request(key, token, "mallory"))
        self.assert_refused(again)
        self.assertEqual(self.it.events(kind="revoked")[0]["node"], "mallory")

    def test_viewer_who_writes(self):
        _, _, peer = self.member("eve", "viewer")
        named = message((1, "eve"))
        # token create, node revoke, node drain, dataset delete, run stop, run
        # delete: numbers of AdminRequest
        for number, content in (
            (1, message((1, 3), (2, 1), (3, 60))),
            (10, named),
            (8, named),
            (15, named),
            (21, named),
            (23, named),
        ):
            with self.subTest(number=number):
                self.assert_refused(peer.ask(request(9, message((number, content)))))
        self.assert_refused(peer.ask(heartbeat(1)))  # nor may she say what nodes say
        self.assertIn(8, peer.ask(request(9, message((4, b"")))))  # node list: she may read
        self.assertEqual(self.it.events(kind="revoked"), [])
        self.assert_told("control: asked for what only an admin may do", node="eve")
        self.assert_told("control: said what only a node may say", node="eve")

    def test_replayed_enrolment(self):
        token = self.token(uses=2)
        victim, thief = Key(), Key()
        taken = attacker.enrol_request(victim, token, "victim")
        first = self.dial("enrol", token, victim).ask(taken)
        self.assertIn(3, first)
        # The same bytes over another's connection prove nothing.
        self.assert_refused(self.dial("enrol", token, thief).ask(taken))
        # A signature that was made for another coordinator proves nothing
        # either.
        elsewhere = attacker.enrol_request(thief, token, "thief", server=Key().ed25519)
        self.assert_refused(self.dial("enrol", token, thief).ask(elsewhere))
        # Again by its own key: the same certificate, and no second use.
        self.assertEqual(self.dial("enrol", token, victim).ask(taken)[3], first[3])
        used = {t["id"]: t["used"] for t in self.it.items("token", "list")}
        self.assertEqual(used[token.id.decode()], 1)
        self.assertEqual(len(self.it.events(kind="enrolled", node="victim")), 1)

    def test_wrong_or_spent_token(self):
        token = self.token()
        attacker.enrolled(self.context, token, "first")
        late = Key()
        self.assert_refused(
            self.dial("enrol", token, late).ask(attacker.enrol_request(late, token, "late"))
        )
        guess = self.token()
        guess.secret = os.urandom(32)
        self.assert_refused(
            self.dial("enrol", guess, late).ask(attacker.enrol_request(late, guess, "late"))
        )
        self.assert_told("enrol: refused")


class Certificates(Attacked):
    """A forged coordinator that answers an honest daemon's enrolment with an invalid certificate.
    """

    def answer(self, make):
        server, first = Key(), free_ports(3)
        url = f"tcp://127.0.0.1:{first}"
        router = attacker.Socket(self.context, attacker.ROUTER, url, server)
        text = Token.make(
            [f"tcp://127.0.0.1:{first + i}" for i in range(3)], server.ed25519, "abc123"
        )
        data = self.it.root / f"daemon-{first}"
        daemon = Process(
            "daemon",
            [
                BIN / "skerryd",
                "join",
                text,
                "--data",
                data,
                "--name",
                "honest",
                "--engine",
                self.it.engine,
            ],
            self.it.root / f"daemon-{first}.log",
        )
        self.addCleanup(daemon.kill)
        who, asked = router.receive(), router.receive()
        node = fields(asked)[5][0]
        body = message(
            (1, 1),
            (2, attacker.blake2b(node).hex()[:32]),
            (3, node),
            (4, attacker.curve_of(node)),
            (5, attacker.NODE),
            (6, "honest"),
            (7, 1),
            (8, 1 << 42),
            (9, server.ed25519),
        )
        reply = message((1, fields(asked)[2][0]), (3, make(server, body, node)))
        router.send(who, reply)
        return daemon

    def test_forged_certificate(self):
        daemon = self.answer(lambda server, body, node: attacker.certificate(Key(), body))
        self.assertEqual(daemon.popen.wait(60), BAD_CONFIGURATION, daemon.tail())
        self.assertRegex(daemon.log_text(), "(?i)certificate|signature")

    def test_expired_certificate(self):
        def expired(server, body, node):
            old = message(
                (1, 1),
                (2, attacker.blake2b(node).hex()[:32]),
                (3, node),
                (4, attacker.curve_of(node)),
                (5, attacker.NODE),
                (6, "honest"),
                (7, 1),
                (8, 2),
                (9, server.ed25519),
            )
            return attacker.certificate(server, old)

        daemon = self.answer(expired)
        self.assertEqual(daemon.popen.wait(60), BAD_CONFIGURATION, daemon.tail())
        self.assertRegex(daemon.log_text(), "(?i)expired")

    def test_certificate_of_another(self):
        def anothers(server, body, node):
            other = Key().ed25519
            return attacker.certificate(
                server,
                message(
                    (1, 1),
                    (2, attacker.blake2b(other).hex()[:32]),
                    (3, other),
                    (4, attacker.curve_of(other)),
                    (5, attacker.NODE),
                    (6, "honest"),
                    (7, 1),
                    (8, 1 << 42),
                    (9, server.ed25519),
                ),
            )

        daemon = self.answer(anothers)
        self.assertEqual(daemon.popen.wait(60), BAD_CONFIGURATION, daemon.tail())
        self.assertRegex(daemon.log_text(), "(?i)another key")


class Training(Attacked):
    def test_commit_for_anothers_expert(self):
        it = self.it
        it.add_dataset(partitions=1)
        it.start_daemon("one", env={"SKERRY_FAKE_STEP_MS": "50"})
        it.create_run("run", train={"steps": 200})
        granted = it.wait_event(kind="granted", run="run")
        head = it.wait_event(kind="committed", run="run")
        shown = it.json("run", "show", "run")
        token, key, peer = self.member("mallory")
        it.run("node", "cordon", "mallory")  # else it stands by, and is given the shards
        stolen = [(1, shown["id"]), (2, 0), (3, granted["epoch"])]
        commit = message(
            *stolen,
            (5, head["step"]),
            (6, head["step"] + 10),
            (8, message((1, os.urandom(32)), (2, 100), (3, 100))),
            (9, message((1, 0.5), (2, 0.5))),
        )
        answer = peer.ask(request(5, commit))
        self.assertEqual(fields(answer[6][0])[1][0], FENCED)
        it.wait_event(kind="fenced", run="run", node="mallory")
        self.assertIn(
            7, peer.ask(request(6, message(*stolen, (4, "mine"))))
        )  # the lease is not its to return
        self.assertIn(
            7, peer.ask(request(7, message(*stolen, (5, 2), (6, "mine"), (8, 1))))
        )  # nor its to give up
        # Shards that it was not given are not there for it.
        shards = it.json("dataset", "show", "shapes")["files"]
        blob = self.dial("blob", token, key)
        blob.send(message((3, message((1, attacker.VERSION), (2, 7)))))
        manifest = bytes.fromhex(next(f["manifest"] for f in shards if f["role"] == "shard"))
        blob.send(message((1, message((1, 1), (2, manifest), (3, manifest)))))
        reply = wait(
            lambda: next((r[2][0] for r in iter_messages(blob) if 2 in r), None),
            "the chunk's reply",
        )
        self.assertEqual(fields(reply).get(3), [1], "missing")
        it.wait_run("run")
        self.assertEqual({e["node"] for e in it.events(kind="committed", run="run")}, {"one"})
        self.assertEqual(
            {e["epoch"] for e in it.events(kind="committed", run="run")}, {granted["epoch"]}
        )

    def test_peer_that_sends_wrong_chunks(self):
        it = self.it
        it.add_dataset(partitions=1)
        token, key, peer = self.member("mallory")
        it.create_run("run", train={"steps": 20})
        it.wait_event(kind="granted", run="run", node="mallory")
        peer.send(heartbeat(1))
        slot = fields(fields(wait(lambda: self.assigned(peer), "its assignment"))[2][0])
        blob = self.dial("blob", token, key)
        blob.send(message((3, message((1, attacker.VERSION), (2, 7)))))
        manifest = os.urandom(32)
        with self.bounded():
            commit = message(
                (1, slot[2][0]),
                (2, 0),
                (3, slot[4][0]),
                (6, 10),
                (8, message((1, manifest), (2, 100), (3, 1 << 20))),
                (9, message((1, 0.5), (2, 0.5))),
            )
            peer.send(request(5, commit, 9))
            asked = wait(
                lambda: next((fields(m[1][0]) for m in iter_messages(blob) if 1 in m), None),
                "the coordinator to ask",
            )
            self.assertEqual(asked[2][0], manifest)
            lie = message((1, asked[1][0]), (2, asked[3][0]), (4, b"\0" * (4 << 20)))
            blob.send(message((2, lie)))
            self.assert_told("blob: broke the rules of the exchange", node="mallory")
        self.assertEqual(it.events(kind="committed"), [])
        peer.close()
        it.start_daemon("one")
        it.wait_run("run")
        self.assertEqual({e["node"] for e in it.events(kind="committed", run="run")}, {"one"})

    def assigned(self, peer):
        peer.send(request(4, b"", 3))
        answer = fields(peer.receive())
        return answer[5][0] if 5 in answer and 2 in fields(answer[5][0]) else None


def iter_messages(peer):
    while (data := peer.receive_now()) is not None:
        yield fields(data)


class Floods(Attacked):
    def test_flood_of_messages(self):
        _, _, peer = self.member("mallory")
        with self.bounded():
            for sequence in range(1, 100_001):
                peer.send(heartbeat(sequence))
            for number in range(2_000):  # each of them has an answer that nobody reads
                peer.send(request(4, b"", number))
            self.assert_serves()
            wait(lambda: peer.receive_now(), "an answer among them")
        self.assert_serves()

    def test_giant_frames(self):
        token, key, peer = self.member("mallory")
        others = {
            "control": peer,
            "blob": self.dial("blob", token, key),
            "enrol": self.dial("enrol", token, Key()),
        }
        with self.bounded():
            for endpoint, each in others.items():
                each.wait_for(attacker.HANDSHAKE_DONE)
                each.send(b"x" * (200 << 20 if endpoint == "blob" else 64 << 20))
                each.wait_for(attacker.DISCONNECTED)
        self.assert_serves()

    def message_of_many_frames(self, peer, size):
        """Each frame is within the limit; all of them together are not.

        The connection's bytes are checked five times a second. Data that arrives in between is
        held: on loopback that is a hundred MiB and more, but far less than half of two GiB.
        """
        peer.wait_for(attacker.HANDSHAKE_DONE)
        whole, frame = 2 << 30, b"x" * size
        with self.bounded(whole / (2 << 20)):
            for _ in range(whole // size):
                peer.send_part(frame)
            peer.send(b"its end")
            peer.wait_for(attacker.DISCONNECTED)
        self.assert_serves()

    def test_strangers_message_of_many_frames(self):
        self.message_of_many_frames(self.dial("enrol", self.token(), Key()), 4000)
        self.assert_told("enrol: sent too much before it was known")

    def test_members_message_of_many_frames(self):
        token, key, peer = self.member("mallory")
        blob = self.dial("blob", token, key)
        blob.wait_for(attacker.HANDSHAKE_DONE)
        blob.send(message((3, message((1, attacker.VERSION), (2, 7)))))
        self.message_of_many_frames(blob, 4 << 20)
        self.assert_told("blob: sent a message that does not end", node="mallory")
        self.message_of_many_frames(peer, 250_000)
        self.assert_told("control: sent a message that does not end", node="mallory")

    def test_member_who_asks_without_end(self):
        """Every Hello of another process of a node costs a write.

        Other nodes are served meanwhile. The coordinator drops the requests above its rate limit.
        """
        count = 20_000
        _, _, mallory = self.member("mallory")
        _, _, ada = self.member("ada")
        with self.bounded():
            for start in range(0, count, count // 4):
                for incarnation in range(start, start + count // 4):
                    mallory.send(hello(incarnation=8 + incarnation))
                ada.send(heartbeat(1 + start, number=100 + start))
                wait(
                    lambda: any(4 in m and m[1] == [100 + start] for m in iter_messages(ada)),
                    "ada's heartbeat",
                )
                self.assert_serves()
            self.assert_told("control: more than", node="mallory")
        self.assertLess(len(self.it.events(kind="node_joined", node="mallory")), 20)

    def test_half_open_handshakes(self):
        token = self.token()
        greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0")
        with self.bounded():
            held = []
            for endpoint in ("enrol", "control", "blob"):
                held += attacker.knock(token.endpoints[endpoint], 300, b"")
                held += attacker.knock(token.endpoints[endpoint], 300, greeting)
            # At enrol all but the newest have been thrown out.
            wait(
                lambda: sum(attacker.is_closed(each) for each in held[:600]) >= 472,
                "the oldest to make room",
            )
            attacker.enrolled(self.context, token, "between-them")
            self.assert_told("enrol: too many connections that had said nothing")
        self.it.start_daemon("one")
        for each in held:
            each.close()
        self.assert_serves()

    def test_flooded_monitor(self):
        token = self.token()
        with self.bounded():
            for _ in range(10):
                for each in attacker.knock(token.endpoints["control"], 300):
                    each.setsockopt(6, 1, 1)
                    each.setsockopt(1, 13, struct.pack("ii", 1, 0))  # closes with a reset
                    each.close()
            self.assert_serves()
            self.it.start_daemon("one")

    def test_dial_storm(self):
        count = 200
        token = self.token(uses=count)
        keys = [Key() for _ in range(count)]
        with self.bounded():
            self.storm(
                [
                    (
                        self.dial("enrol", token, key),
                        attacker.enrol_request(key, token, f"storm-{i}"),
                    )
                    for i, key in enumerate(keys)
                ],
                expected=3,
            )
            self.storm([(self.dial("control", token, key), hello()) for key in keys], expected=3)
        self.assertEqual(len({e["node"] for e in self.it.events(kind="enrolled")}), count)

    def storm(self, peers, expected):
        """All peers at once; one that was evicted to make room retries."""
        waiting = dict(peers)
        rounds = 0
        while waiting:
            rounds += 1
            self.assertLess(rounds, 200, f"{len(waiting)} were never served")
            for peer, question in waiting.items():
                peer.send(question)
            served = set()
            try:
                wait(
                    lambda: served.update(self.answered(waiting, expected))
                    or len(served) == len(waiting),
                    "",
                    limit=1,
                )
            except AssertionError:
                pass
            for peer in served:
                del waiting[peer]
        for peer, _ in peers:
            peer.close()

    @staticmethod
    def answered(waiting, expected):
        return [peer for peer in waiting if any(expected in m for m in iter_messages(peer))]


class Descriptors(EndToEnd):
    """Few descriptors, and more connections than they suffice for."""

    def start(self, descriptors, connections):
        it = self.cluster(coordinator_args=["--connections", connections])
        command = [
            "prlimit",
            f"--nofile={descriptors}:{descriptors}",
            BIN / "skerry-coordinator",
            "--data",
            it.root / "coordinator",
            "--listen",
            f"127.0.0.1:{it.port}",
            "--connections",
            connections,
        ]
        it.coordinator = Process("coordinator", command, it.root / "coordinator.log")
        return it

    def test_too_few_refuse_to_start(self):
        it = self.start(descriptors=128, connections=64)
        self.assertNotEqual(it.coordinator.popen.wait(60), 0)
        self.assertIn("LimitNOFILE", it.coordinator.log_text())

    def test_more_connections_than_descriptors(self):
        it = self.start(descriptors=416, connections=8)
        it.wait(
            lambda: (it.root / "coordinator/admin.toml").exists()
            and it.try_json("node", "list") is not None,
            "the coordinator to answer",
            it.coordinator,
        )
        token = Token(it.json("token", "create", "--role", "node")["token"])
        held = [
            c
            for endpoint in ("enrol", "control", "blob")
            for c in attacker.knock(token.endpoints[endpoint], 400)
        ]
        it.wait(
            lambda: it.try_json("node", "list") is not None,
            "the coordinator to answer among them",
            it.coordinator,
        )
        it.start_daemon("one")
        self.assertLessEqual(len(os.listdir(f"/proc/{it.coordinator.pid}/fd")), 416)
        for each in held:
            each.close()


if __name__ == "__main__":
    unittest.main()
