"""Tests of heartbeat.py against real servers: `python3 -m unittest` in this folder."""

import asyncio
import base64
import contextlib
import http.server
import json
import os
import socketserver
import struct
import tempfile
import threading
import time
import unittest
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import serve

import heartbeat
from heartbeat import Heartbeat, endpoint

# Machines are busy: everything that must happen may take this long.
DEADLINE_S = 30
INTERVAL_S = 0.1
WINDOW_S = 3 * INTERVAL_S
SUGGESTED = {"code": 1011, "reason": "heartbeat timeout"}
ALIVE = {"verdict": "congested", "kill_justified": False, "suggested_close": None}
GONE = {"verdict": "unreachable", "kill_justified": True, "suggested_close": SUGGESTED}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the sidecar's API does, or as it may not."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        self.server.questions.append({name: value[0] for name, value in query.items()})
        status, body = self.server.answer
        if status is None:
            time.sleep(body)
            return
        self.reply(status, body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.reports.extend(json.loads(body)["heartbeats"])
        self.reply(202, {"accepted": 1, "unmatched": 0, "redundant": 0})

    def reply(self, status, body):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def setup(self):
        super().setup()
        self.server.connections += 1

    def log_message(self, *_):
        pass

    def address_string(self):
        return ""


class FakeSidecar:
    """A sidecar on a thread: a real HTTP server."""

    def __init__(self, answer, path=None):
        self.path = path
        if path is None:
            self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        else:
            self.server = socketserver.ThreadingUnixStreamServer(path, Handler)
            self.address = f"unix:{path}"
        self.server.daemon_threads = True
        self.server.answer, self.server.questions, self.server.reports = (200, answer), [], []
        self.server.connections = 0
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self):
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()


class Peer:
    """A client that answers Pings, or not, or not even a Close frame."""

    @classmethod
    async def connect(cls, server, mute=False, deaf=False):
        self = cls()
        address = server.sockets[0].getsockname()
        self.reader, self.writer = await asyncio.open_connection(address[0], address[1])
        self.local = endpoint(self.writer.get_extra_info("sockname"))
        self.remote = endpoint(self.writer.get_extra_info("peername"))
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET / HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self.writer.write(head.encode())
        await self.reader.readuntil(b"\r\n\r\n")
        self.pings, self.close, self.mute, self.deaf = 0, None, mute or deaf, deaf
        self.ended = asyncio.create_task(self.read())
        return self

    def send(self, opcode, payload):
        # A mask of zeros is a mask.
        with contextlib.suppress(ConnectionError):
            self.writer.write(bytes([0x80 | opcode, 0x80 | len(payload), 0, 0, 0, 0]) + payload)

    async def read(self):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, length = await self.reader.readexactly(2)
                payload = await self.reader.readexactly(length)
                if first & 0x0F == 0x9:
                    self.pings += 1
                    if not self.mute:
                        self.send(0xA, payload)
                elif first & 0x0F == 0x8:
                    self.close = (struct.unpack("!H", payload[:2])[0], payload[2:].decode())
                    if not self.deaf:
                        self.send(0x8, payload)
        self.writer.close()


async def until(what, condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {DEADLINE_S} s")
        await asyncio.sleep(0.005)


class Tests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.stack = contextlib.AsyncExitStack()
        self.kills, self.fallbacks, self.recoveries = [], [], []

    async def asyncTearDown(self):
        for peer in self.peers:
            peer.writer.close()
        await self.stack.aclose()
        self.sidecar.stop()
        await asyncio.gather(*(peer.ended for peer in self.peers))

    async def scene(self, answer=ALIVE, host="127.0.0.1", path=None, **options):
        self.peers = []
        self.sidecar = FakeSidecar(answer, path)
        self.fake = self.sidecar.server

        async def handler(connection):
            await connection.wait_closed()

        self.server = await self.stack.enter_async_context(serve(handler, host, 0, ping_interval=None, close_timeout=1))
        options = {
            "interval": INTERVAL_S,
            "sidecar": self.sidecar.address,
            "timeout": DEADLINE_S,
            "on_kill": self.kills.append,
            "on_fallback": self.fallbacks.append,
            "on_recover": lambda: self.recoveries.append(True),
            **options,
        }
        self.heartbeat = await self.stack.enter_async_context(Heartbeat(self.server, **options))

    async def connect(self, **options):
        peer = await Peer.connect(self.server, **options)
        self.peers.append(peer)
        return peer

    async def test_a_client_that_answers_stays(self):
        await self.scene(GONE)
        peer = await self.connect()
        await until("ten Pings", lambda: peer.pings >= 10)
        self.assertEqual(self.kills, [])
        self.assertFalse(peer.ended.done())

    async def test_a_late_pong_is_no_kill_unless_it_is_justified(self):
        await self.scene(ALIVE)
        peer = await self.connect(mute=True)
        await until("ten questions", lambda: len(self.fake.questions) >= 10)
        self.assertEqual(self.fake.questions[0], {"peer": peer.local, "local": peer.remote})
        self.assertEqual(self.kills, [])
        self.assertLessEqual(self.fake.connections, 4, "connections are kept")
        self.fake.answer = (200, GONE)
        await peer.ended
        self.assertEqual(peer.close, (1011, "heartbeat timeout"))
        self.assertEqual([kill.by for kill in self.kills], ["verdict"])
        self.assertEqual(self.fallbacks, [])
        close = {"kind": "close", **SUGGESTED, "peer": peer.local, "local": peer.remote}
        await until("the report of the Close frame", lambda: self.fake.reports == [close])
        await until("that it is forgotten", lambda: not self.heartbeat.watched)

    async def test_the_sidecar_suggests_what_to_close_with(self):
        await self.scene({**GONE, "suggested_close": {"code": 4008, "reason": "no progress"}})
        peer = await self.connect(mute=True)
        await peer.ended
        self.assertEqual(peer.close, (4008, "no progress"))

    async def test_a_suggestion_that_is_no_close_frame_is_not_sent(self):
        for suggested in (None, {"code": 1006, "reason": ""}, {"code": 1011, "reason": "x" * 124}, {"code": "1011"}):
            self.assertEqual(heartbeat.close_frame(suggested), (1011, "heartbeat timeout"))
        await self.scene({**GONE, "suggested_close": {"code": 1006, "reason": ""}})
        peer = await self.connect(mute=True)
        await peer.ended
        self.assertEqual(peer.close, (1011, "heartbeat timeout"))

    async def test_a_client_that_does_not_answer_the_close_frame_is_cut_off(self):
        await self.scene(GONE, close_timeout=0.2)
        peer = await self.connect(deaf=True)
        await until("the end", peer.ended.done)
        self.assertEqual(peer.close, (1011, "heartbeat timeout"))

    async def test_a_window_decides_where_the_answer_is_of_no_use(self):
        answers = [(404, {}), (409, {}), (503, {}), (500, b""), (200, b"<h1>It works!</h1>"), (200, {"kill_justified": 1})]
        await self.scene()
        for answer in answers:
            with self.subTest(answer=answer):
                self.fake.answer = answer
                self.kills.clear()
                peer = await self.connect(mute=True)
                await until("the end", peer.ended.done)
                self.assertEqual(peer.close, (1011, "heartbeat timeout"))
                self.assertEqual([kill.by for kill in self.kills], ["window"])
                self.assertGreaterEqual(self.kills[0].last_pong_age_s, WINDOW_S)

    async def test_a_window_decides_where_the_answer_is_late(self):
        await self.scene(timeout=0.05)
        self.fake.answer = (None, 0.5)
        peer = await self.connect(mute=True)
        await until("the end", peer.ended.done)
        self.assertEqual([kill.by for kill in self.kills], ["window"])
        self.assertEqual(len(self.fallbacks), 1)

    async def test_it_falls_back_once_and_goes_back(self):
        await self.scene()
        self.fake.answer = (500, b"")
        healthy = await self.connect()
        gone = [await self.connect(mute=True) for _ in range(10)]
        for peer in gone:
            await until("the end", peer.ended.done)
        self.assertEqual(len(self.fallbacks), 1)
        self.fake.answer = (200, ALIVE)
        kept = await self.connect(mute=True)
        await until("the recovery", lambda: self.recoveries)
        asked = len(self.fake.questions)
        await until("ten more questions", lambda: len(self.fake.questions) >= asked + 10)
        self.assertFalse(kept.ended.done())
        self.assertFalse(healthy.ended.done())
        self.assertEqual((len(self.fallbacks), len(self.recoveries)), (1, 1))

    async def test_a_window_decides_where_nobody_listens(self):
        await self.scene()
        self.sidecar.stop()
        healthy, gone = await self.connect(), await self.connect(mute=True)
        await until("the end", gone.ended.done)
        self.assertEqual(gone.close, (1011, "heartbeat timeout"))
        self.assertFalse(healthy.ended.done())

    async def test_time_in_which_this_process_stood_still_is_not_the_peers(self):
        await self.scene()
        self.sidecar.stop()
        peer = await self.connect()
        await until("a Ping", lambda: peer.pings > 0)
        time.sleep(5 * WINDOW_S)
        pings = peer.pings
        await until("more Pings", lambda: peer.pings >= pings + 5)
        self.assertEqual(self.kills, [])

    async def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            await self.scene(GONE, path=os.path.join(folder, "api.sock"))
            peer = await self.connect(mute=True)
            await until("the end", peer.ended.done)
            self.assertEqual([kill.by for kill in self.kills], ["verdict"])

    async def test_addresses_are_written_as_the_sidecar_writes_them(self):
        self.assertEqual(endpoint(("10.0.0.1", 443)), "10.0.0.1:443")
        self.assertEqual(endpoint(("::ffff:10.0.0.1", 443, 0, 0)), "10.0.0.1:443")
        self.assertEqual(endpoint(("fe80::1%eth0", 443, 0, 2)), "[fe80::1]:443")
        await self.scene(ALIVE, host="::1")
        peer = await self.connect(mute=True)
        await until("a question", lambda: self.fake.questions)
        self.assertEqual(self.fake.questions[0], {"peer": peer.local, "local": peer.remote})
        self.assertTrue(peer.local.startswith("[::1]:"))

    async def test_a_wrong_address_is_refused(self):
        await self.scene()
        for wrong in ("https://127.0.0.1:9465", "unix:api.sock", "127.0.0.1:9465"):
            with self.assertRaises(ValueError):
                Heartbeat(self.server, sidecar=wrong)


if __name__ == "__main__":
    unittest.main()
