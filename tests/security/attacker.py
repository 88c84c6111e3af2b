# SPDX-License-Identifier: Apache-2.0
"""A peer that breaks the protocol: raw CURVE connections, hand-made messages and bare TCP.

Talks to a real coordinator. Uses the libraries that the programs use, through ctypes, but nothing
of the programs' own client.
"""

import base64
import ctypes
import hashlib
import itertools
import os
import pathlib
import re
import select
import socket
import struct
import time

zmq = ctypes.CDLL("libzmq.so.5", use_errno=True)
sodium = ctypes.CDLL("libsodium.so.23")
assert sodium.sodium_init() >= 0
zmq.zmq_ctx_new.restype = zmq.zmq_socket.restype = ctypes.c_void_p
zmq.zmq_ctx_term.argtypes = zmq.zmq_close.argtypes = [ctypes.c_void_p]
zmq.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
zmq.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
zmq.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
zmq.zmq_getsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
zmq.zmq_send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
zmq.zmq_send_const.argtypes = zmq.zmq_send.argtypes
zmq.zmq_recv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
zmq.zmq_bind.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
zmq.zmq_socket_monitor.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]

PAIR, DEALER, ROUTER = 0, 5, 6
LINGER, SNDHWM, RCVHWM, FD, EVENTS = 17, 23, 24, 14, 15
CURVE_SERVER, CURVE_PUBLIC, CURVE_SECRET, CURVE_SERVERKEY = 47, 48, 49, 50
DONTWAIT, SNDMORE, POLLIN = 1, 2, 1
HANDSHAKE_DONE, REFUSED_KEY, DISCONNECTED = 0x1000, 0x4000, 0x0200
EVERY_EVENT = 0xFFFF

BIGGEST = 8 << 20
NODE, VIEWER, ADMIN = 1, 2, 3


# ---- Messages, by field numbers of protocol/skerry.proto


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def message(*fields):
    """(number, value) each: int, float, str, bytes, or the bytes of another message."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def fields(data):
    """{number: [values]} of a message; nested ones stay bytes."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or number()
            value, at = data[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


VERSION = message((1, 1), (2, 2))


def request(body, content, number=1):
    return message((1, number), (body, content))


def hello(incarnation=7, slots=1, number=1):
    offered = [(4, message((1, i), (2, "cpu"))) for i in range(slots)]
    return request(2, message((1, VERSION), (2, "attacker"), (3, incarnation), *offered), number)


def heartbeat(sequence, incarnation=7, number=2):
    return request(3, message((1, incarnation), (2, sequence)), number)


# ---- Keys


class Key:
    def __init__(self, seed=None):
        self.seed = seed or os.urandom(32)
        self.ed25519, secret = ctypes.create_string_buffer(32), ctypes.create_string_buffer(64)
        sodium.crypto_sign_seed_keypair(self.ed25519, secret, self.seed)
        curve = ctypes.create_string_buffer(32)
        sodium.crypto_sign_ed25519_sk_to_curve25519(curve, secret)
        self.secret, self.curve_secret, self.ed25519 = secret.raw, curve.raw, self.ed25519.raw
        self.curve = curve_of(self.ed25519)

    def sign(self, domain, data):
        signature = ctypes.create_string_buffer(64)
        whole = domain + data
        sodium.crypto_sign_detached(
            signature, None, whole, ctypes.c_ulonglong(len(whole)), self.secret
        )
        return signature.raw


def curve_of(ed25519):
    key = ctypes.create_string_buffer(32)
    assert sodium.crypto_sign_ed25519_pk_to_curve25519(key, ed25519) == 0
    return key.raw


def blake2b(data):
    return hashlib.blake2b(data, digest_size=32).digest()


class Token:
    """What `skerry token create` printed."""

    def __init__(self, text):
        coded = text.split(".", 1)[1]
        body = base64.urlsafe_b64decode(coded + "=" * (-len(coded) % 4))[:-4]
        found = fields(body)
        self.endpoints = {
            name: value[0].decode()
            for name, value in zip(("enrol", "control", "blob"), fields(found[1][0]).values())
        }
        self.server, self.id, self.secret = found[2][0], found[3][0], found[4][0]

    @staticmethod
    def make(endpoints, server, identity, role=NODE, expires_unix_ms=1 << 42):
        """A token of a coordinator of one's own."""
        body = message(
            (1, message(*enumerate(endpoints, 1))),
            (2, server),
            (3, identity),
            (4, os.urandom(32)),
            (5, role),
            (6, expires_unix_ms),
        )
        return "skerry1." + base64.urlsafe_b64encode(body + blake2b(body)[:4]).rstrip(b"=").decode()


ENROL, CERTIFICATE = b"skerry enrol 1", b"skerry certificate 1"


def enrol_request(key, token, name, server=None):
    signed = token.id + curve_of(server or token.server) + key.ed25519
    return message(
        (1, VERSION),
        (2, 1),
        (3, token.id),
        (4, token.secret),
        (5, key.ed25519),
        (6, key.sign(ENROL, signed)),
        (7, name),
    )


def certificate(signer, body):
    return message((1, body), (2, signer.sign(CERTIFICATE, body)))


# ---- Connections


class Context:
    def __init__(self):
        self.handle = zmq.zmq_ctx_new()
        zmq.zmq_ctx_set(ctypes.c_void_p(self.handle), 2, 8000)  # sockets
        self.open = []
        self.held = set()  # frames that ZeroMQ reads until the context has ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in list(self.open):
            each.close()
        zmq.zmq_ctx_term(self.handle)

    def dealer(self, url, server, key=None):
        return Socket(self, DEALER, url, key or Key(), server)


class Socket:
    numbers = itertools.count()

    def __init__(self, context, kind, url, key, server=None):
        self.context, self.key = context, key
        self.handle = zmq.zmq_socket(context.handle, kind)
        context.open.append(self)
        for option in (LINGER, SNDHWM, RCVHWM):
            self.set(option, struct.pack("i", 0))
        self.set(CURVE_PUBLIC, key.curve)
        self.set(CURVE_SECRET, key.curve_secret)
        self.events = None
        if server is None:
            self.set(CURVE_SERVER, struct.pack("i", 1))
            assert zmq.zmq_bind(self.handle, url.encode()) == 0
            return
        self.set(CURVE_SERVERKEY, curve_of(server))
        # A name that no other socket had: a closed one gives its own free only
        # after a while.
        name = f"inproc://events-{next(self.numbers)}".encode()
        assert zmq.zmq_socket_monitor(self.handle, name, EVERY_EVENT) == 0
        self.events = zmq.zmq_socket(context.handle, PAIR)
        zmq.zmq_setsockopt(self.events, RCVHWM, struct.pack("i", 0), 4)
        assert zmq.zmq_connect(self.events, name) == 0
        self.happened = []
        zmq.zmq_connect(self.handle, url.encode())

    def set(self, option, value):
        assert zmq.zmq_setsockopt(self.handle, option, value, len(value)) == 0, option

    def close(self):
        if self in self.context.open:
            self.context.open.remove(self)
            if self.events:
                zmq.zmq_socket_monitor(self.handle, None, 0)
                zmq.zmq_close(self.events)
            zmq.zmq_close(self.handle)

    def send(self, *frames):
        for i, frame in enumerate(frames):
            zmq.zmq_send(self.handle, frame, len(frame), SNDMORE if i + 1 < len(frames) else 0)

    def send_part(self, frame):
        """Sends a frame of an unfinished message, which ZeroMQ holds until the message is whole.

        The frame is not copied, so that repeating it costs the attacker nothing.
        """
        self.context.held.add(frame)
        zmq.zmq_send_const(self.handle, frame, len(frame), SNDMORE)

    def receive_now(self):
        buffer = ctypes.create_string_buffer(BIGGEST)
        size = zmq.zmq_recv(self.handle, buffer, BIGGEST, DONTWAIT)
        return None if size < 0 else buffer.raw[:size]

    def receive(self, limit=60):
        return wait(self.receive_now, "an answer", limit)

    def ask(self, data, limit=60):
        """The answer's fields. Heartbeats and the like have their own numbers; the last answer
        counts.
        """
        self.send(data)
        return fields(self.receive(limit))

    def look(self):
        """What happened to the connection so far, by ZeroMQ's event numbers."""
        buffer = ctypes.create_string_buffer(4096)
        while (size := zmq.zmq_recv(self.events, buffer, 4096, DONTWAIT)) >= 0:
            if size == 6:
                self.happened.append(struct.unpack("<HI", buffer.raw[:6])[0])
        return self.happened

    def wait_for(self, event, limit=60):
        wait(lambda: event in self.look(), f"event {event:#x} of the connection", limit)


def wait(condition, what, limit=60):
    """The limit is for hangs only."""
    end = time.monotonic() + limit
    while True:
        value = condition()
        if value is not None and value is not False:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited for {what}")
        time.sleep(0.002)


def knock(url, count, first=b""):
    """Bare TCP connections that go no further than their first bytes."""
    host, port = re.fullmatch(r"tcp://(.*):(\d+)", url).groups()
    made = []
    for _ in range(count):
        each = socket.create_connection((host, int(port)), timeout=60)
        if first:
            each.sendall(first)
        made.append(each)
    return made


def is_closed(connection):
    """Whether the other side has ended it; what it sent before is read away."""
    while select.select([connection], [], [], 0)[0]:
        try:
            if not connection.recv(4096):
                return True
        except OSError:
            return True
    return False


def peak_mib(pid):
    return (
        int(re.search(r"VmHWM:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024
    )


def enrolled(context, token, name, key=None):
    """A key that the coordinator has rostered."""
    key = key or Key()
    peer = context.dealer(token.endpoints["enrol"], token.server, key)
    answer = peer.ask(enrol_request(key, token, name))
    peer.close()
    assert 3 in answer, answer
    return key
