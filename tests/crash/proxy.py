# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy between daemons and a coordinator: delays or holds data, or resets every connection.
"""

import asyncio
import random
import socket
import struct
import threading


class Loop:
    """One thread that serves every proxy."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()


class Proxy:
    """Forwards `count` ports from `first` on to those from `target` on.

    Any thread but the loop's may call its methods.
    """

    def __init__(self, loop, first, target, count=3):
        self.loop, self.first, self.target, self.count = loop, first, target, count
        self.delay = 0.0  # seconds that bytes take at most
        self.writers, self.servers = set(), []
        self.moving = None  # an asyncio event: cleared, nothing moves
        loop.run(self._open())

    async def _open(self):
        self.moving = asyncio.Event()
        self.moving.set()
        for i in range(self.count):
            self.servers.append(
                await asyncio.start_server(
                    lambda r, w, i=i: self._serve(r, w, self.target + i),
                    "127.0.0.1",
                    self.first + i,
                )
            )

    async def _serve(self, reader, writer, port):
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self._reset(writer)
            return
        self.writers |= {writer, far_writer}
        ways = [
            asyncio.ensure_future(self._pass(reader, far_writer)),
            asyncio.ensure_future(self._pass(far_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for each in (writer, far_writer):
            self.writers.discard(each)
            each.close()

    async def _pass(self, reader, writer):
        try:
            while data := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(random.uniform(0, self.delay))
                await self.moving.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass

    @staticmethod
    def _reset(writer):
        # No farewell: RST, as a NAT that forgot the connection.
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()

    def set_delay(self, seconds):
        self.delay = seconds

    def hold(self, on):
        self.loop.loop.call_soon_threadsafe(self.moving.clear if on else self.moving.set)

    def cut(self):
        def reset():
            for writer in list(self.writers):
                self._reset(writer)

        self.loop.loop.call_soon_threadsafe(reset)

    def close(self):
        async def shut():
            for server in self.servers:
                server.close()
            for writer in list(self.writers):
                self._reset(writer)

        self.loop.run(shut())
