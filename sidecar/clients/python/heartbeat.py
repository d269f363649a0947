"""A heartbeat for servers of the Python package websockets that asks ackbeat before it kills.

Pings every connection, asks the ackbeat sidecar about those whose Pong is late (`GET /v1/verdict`), and closes only those
that are gone, with a Close frame (`1011 heartbeat timeout`). Where the sidecar cannot be asked, a connection is closed after
three intervals without a Pong. Needs Python 3.11 and websockets 15 or later, and nothing else.

    async with serve(handler, "0.0.0.0", 8080, ping_interval=None) as server, Heartbeat(server):
        await server.serve_forever()

Copy this file, or run it: an echo server.

    python3 heartbeat.py [ADDRESS [PORT]]
"""

import asyncio
import contextlib
import dataclasses
import http.client
import ipaddress
import json
import logging
import socket
import sys
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

# What to close with where the sidecar suggests nothing (RFC 6455 section 7.4.1).
CODE, REASON = 1011, "heartbeat timeout"
# Intervals without a Pong after which a connection is closed where the sidecar cannot be asked.
WINDOW_INTERVALS = 3
# An answer of /v1/verdict has about 1.5 kB. More than this is from somebody else.
ANSWER_MAX_BYTES = 64 * 1024

logger = logging.getLogger("ackbeat.heartbeat")


class NoAnswer(Exception):
    """The sidecar gave no usable answer."""


class NotKnown(NoAnswer):
    """The sidecar is there, and does not know this connection (404), or not which one is meant (409)."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


# The sidecar closes a connection that carried nothing for 30 s.
KEPT_S = 15


class Sidecar:
    """The sidecar's API, asked on a few threads, each with a connection that it keeps."""

    def __init__(self, address: str, timeout: float, max_in_flight: int) -> None:
        self.timeout = timeout
        url = urllib.parse.urlsplit(address)
        if address.startswith("unix:/"):
            self.connect = lambda: UnixConnection(address.removeprefix("unix:"), timeout)
        elif url.scheme == "http" and url.hostname:
            self.connect = lambda: http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
        else:
            raise ValueError(f"sidecar must be an http:// URL or unix: and an absolute path, not {address!r}")
        # Connections that are kept for the next question; as many as there are threads at most.
        self.kept: list[http.client.HTTPConnection] = []
        self.is_closed = False
        self.idle: asyncio.TimerHandle | None = None
        self.threads = ThreadPoolExecutor(max_in_flight, thread_name_prefix="ackbeat")

    async def verdict(self, peer: str, local: str) -> dict[str, Any]:
        """What the sidecar knows of a connection; raises NoAnswer where it cannot be known."""
        query = urllib.parse.urlencode({"peer": peer, "local": local})
        answer = await self.exchange("GET", f"/v1/verdict?{query}")
        if not isinstance(answer, dict) or not isinstance(answer.get("kill_justified"), bool):
            raise NoAnswer("the answer has no kill_justified: is this the sidecar?")
        return answer

    async def report(self, heartbeats: list[dict[str, Any]]) -> None:
        """Tells the sidecar of what it cannot see."""
        await self.exchange("POST", "/v1/heartbeats", json.dumps({"heartbeats": heartbeats}))

    async def exchange(self, method: str, path: str, body: str | None = None) -> Any:
        loop = asyncio.get_running_loop()
        if self.idle is not None:
            self.idle.cancel()
        self.idle = loop.call_later(KEPT_S, self.close_kept)
        try:
            # The time is for the whole exchange; a thread's own limit is for each read, and frees it a little later.
            async with asyncio.timeout(self.timeout):
                return await loop.run_in_executor(self.threads, self.request, method, path, body)
        except TimeoutError:
            raise NoAnswer(f"no answer within {self.timeout} s") from None

    def close_kept(self) -> None:
        """Closes connections that nobody needs now: the sidecar gives them up too, and that would be seen by nobody."""
        while self.kept:
            self.kept.pop().close()

    def request(self, method: str, path: str, body: str | None) -> Any:
        try:
            kept = self.kept.pop()
        except IndexError:
            kept = None
        connection = kept or self.connect()
        try:
            try:
                connection.request(method, path, body, {"content-type": "application/json"} if body else {})
                response = connection.getresponse()
            except (ConnectionError, http.client.BadStatusLine):
                connection.close()
                if kept is None:
                    raise
                # The sidecar may close a kept connection just when it is used again, and is there all the same.
                return self.request(method, path, body)
            content = response.read(ANSWER_MAX_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswer(f"the sidecar cannot be asked: {error}") from error
        if response.isclosed() and not response.will_close and not self.is_closed:
            self.kept.append(connection)
        else:
            connection.close()
        if response.status in (404, 409):
            raise NotKnown(f"the sidecar answered with the status {response.status}")
        if not 200 <= response.status <= 299:
            raise NoAnswer(f"the sidecar answered with the status {response.status}")
        try:
            return json.loads(content)
        except ValueError:
            raise NoAnswer("the answer is no JSON: is this the sidecar?") from None

    def close(self) -> None:
        """Takes no more questions."""
        self.is_closed = True
        self.threads.shutdown(wait=False, cancel_futures=True)
        if self.idle is not None:
            self.idle.cancel()
        self.close_kept()


def endpoint(address: tuple[Any, ...]) -> str:
    """`ADDRESS:PORT` as the sidecar writes it, an IPv6 address in brackets."""
    # The zone of a link-local address is this machine's own word, and no part of the address.
    ip = ipaddress.ip_address(address[0].partition("%")[0])
    # An IPv4-mapped address is IPv4 on the wire (RFC 4291 section 2.5.5.2).
    ip = getattr(ip, "ipv4_mapped", None) or ip
    return f"[{ip}]:{address[1]}" if ip.version == 6 else f"{ip}:{address[1]}"


def close_frame(suggested: Any) -> tuple[int, str]:
    """What to close with: the sidecar's suggestion, if a host may send it (RFC 6455 sections 5.5 and 7.4)."""
    match suggested:
        case {"code": int(code), "reason": str(reason)} if len(reason.encode()) <= 123:
            if 3000 <= code <= 4999 or (1000 <= code <= 1014 and code not in (1004, 1005, 1006)):
                return code, reason
    return CODE, REASON


@dataclasses.dataclass
class Watched:
    """One connection's heartbeat."""

    connection: ServerConnection
    # The last Pong, or the beginning.
    heard_at: float
    # Intervals since, as a loop that counts would have them.
    unanswered: int = 0
    # A Ping that the event loop has not written: another one behind it would tell nothing more.
    ping_waits: bool = False
    asked: bool = False


@dataclasses.dataclass(frozen=True)
class Kill:
    """A connection that is being closed."""

    connection: ServerConnection
    # `verdict`, or `window` where the sidecar could not be asked.
    by: str
    code: int
    reason: str
    last_pong_age_s: float
    # What the sidecar said.
    verdict: dict[str, Any] | None


class Heartbeat:
    """Pings all connections of a server while it is entered. Times are in seconds."""

    def __init__(
        self,
        server: Server,
        *,
        interval: float = 2.0,
        missed: int = 2,
        sidecar: str = "http://127.0.0.1:9465",
        timeout: float = 0.5,
        max_in_flight: int = 4,
        close_timeout: float = 5.0,
        on_kill: Callable[[Kill], None] = lambda kill: None,
        on_fallback: Callable[[str], None] = lambda why: None,
        on_recover: Callable[[], None] = lambda: None,
    ) -> None:
        self.server = server
        self.interval = interval
        self.missed = missed
        self.sidecar = Sidecar(sidecar, timeout, max_in_flight)
        self.close_timeout = close_timeout
        self.on_kill, self.on_fallback, self.on_recover = on_kill, on_fallback, on_recover
        self.watched: dict[ServerConnection, Watched] = {}
        # The sidecar cannot be asked at all, and it was told that it does not know a connection.
        self.outage = False
        self.told = False
        # Questions under way or waiting: at most one for each connection.
        self.asking = 0
        self.slots = asyncio.Semaphore(max_in_flight)
        self.tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Heartbeat":
        self.loop = self.start(self.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.sidecar.close()

    def start(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.done)
        return task

    def done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a heartbeat failed", exc_info=error)

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due += self.interval
            await asyncio.sleep(due - time.monotonic())
            late = time.monotonic() - due
            # Time in which this process itself stood still is not the peers': their Pongs may lie unread.
            stood_still = late > self.interval / 2
            if stood_still:
                due = time.monotonic()
            self.tick(stood_still)

    def tick(self, stood_still: bool) -> None:
        now = time.monotonic()
        # Connections that have closed, or have begun to, are forgotten.
        kept = self.watched
        self.watched = {
            connection: kept.get(connection) or Watched(connection, now) for connection in self.server.connections
        }
        for watched in self.watched.values():
            if stood_still:
                watched.heard_at = now
            if watched.unanswered >= self.missed:
                self.judge(watched)
            watched.unanswered += 1
            if not watched.ping_waits and watched.connection.state is State.OPEN:
                watched.ping_waits = True
                self.start(self.ping(watched))

    async def ping(self, watched: Watched) -> None:
        try:
            pong = await watched.connection.ping()
        except ConnectionClosed:
            return
        finally:
            watched.ping_waits = False

        def done(pong: asyncio.Future[float]) -> None:
            # A connection that closes cancels it, or fails it.
            if not pong.cancelled() and pong.exception() is None:
                self.heard(watched)

        pong.add_done_callback(done)

    def heard(self, watched: Watched) -> None:
        """A Pong came."""
        watched.heard_at = time.monotonic()
        watched.unanswered = 0

    def judge(self, watched: Watched) -> None:
        """A connection whose Pong is late."""
        # During an outage one question an interval finds out whether the sidecar is back; whoever asks it is judged with the
        # answer.
        if self.outage and self.asking > 0:
            self.judge_by_window(watched)
        elif not watched.asked:
            watched.asked = True
            self.asking += 1
            self.start(self.ask(watched, self.outage))

    async def ask(self, watched: Watched, in_outage: bool) -> None:
        try:
            async with self.slots:
                connection, heard_at = watched.connection, watched.heard_at
                # Those that waited while the sidecar went away are judged by the next tick.
                if connection.state is not State.OPEN or self.outage != in_outage:
                    return
                peer, local = endpoint(connection.remote_address), endpoint(connection.local_address)
                verdict = await self.sidecar.verdict(peer, local)
        except NoAnswer as error:
            is_known_to_be_so = self.told if isinstance(error, NotKnown) else self.outage
            self.outage = not isinstance(error, NotKnown)
            self.told = True
            if not is_known_to_be_so:
                self.on_fallback(str(error))
            self.judge_by_window(watched)
        else:
            if self.outage:
                self.outage = self.told = False
                self.on_recover()
            # A Pong that came meanwhile knows better.
            if verdict["kill_justified"] and watched.heard_at == heard_at:
                self.kill(watched, verdict)
        finally:
            watched.asked = False
            self.asking -= 1

    def judge_by_window(self, watched: Watched) -> None:
        if time.monotonic() - watched.heard_at >= WINDOW_INTERVALS * self.interval:
            self.kill(watched, None)

    def kill(self, watched: Watched, verdict: dict[str, Any] | None) -> None:
        connection = watched.connection
        if connection.state is not State.OPEN:
            return
        code, reason = close_frame((verdict or {}).get("suggested_close"))
        age = time.monotonic() - watched.heard_at
        self.start(self.close(connection, code, reason))
        self.on_kill(Kill(connection, "window" if verdict is None else "verdict", code, reason, age, verdict))

    async def close(self, connection: ServerConnection, code: int, reason: str) -> None:
        # Behind what a peer that is gone has not acknowledged, the Close frame may never leave the kernel: only this
        # process knows of it.
        if not self.outage:
            peer, local = endpoint(connection.remote_address), endpoint(connection.local_address)
            self.start(self.tell({"peer": peer, "local": local, "kind": "close", "code": code, "reason": reason}))
        # A peer that is gone never answers the Close frame. What ends the connection then is this, not minutes of TCP.
        try:
            async with asyncio.timeout(self.close_timeout):
                await connection.close(code, reason)
        except TimeoutError:
            connection.transport.abort()

    async def tell(self, heartbeat: dict[str, Any]) -> None:
        # The close goes on, whatever becomes of the report.
        with contextlib.suppress(NoAnswer):
            await self.sidecar.report([heartbeat])


async def echo(connection: ServerConnection) -> None:
    """Sends back what comes."""
    with contextlib.suppress(ConnectionClosed):
        async for message in connection:
            await connection.send(message)


async def main(address: str = "127.0.0.1", port: str = "8080") -> None:
    """Serves until it is interrupted."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    def on_kill(kill: Kill) -> None:
        peer = endpoint(kill.connection.remote_address)
        logger.info("closing %s (%s): %d %s, last Pong %.1f s ago", peer, kill.by, kill.code, kill.reason, kill.last_pong_age_s)

    handlers = {
        "on_kill": on_kill,
        "on_fallback": lambda why: logger.info("deciding without ackbeat: %s", why),
        "on_recover": lambda: logger.info("ackbeat answers again"),
    }
    # The library's own keepalive counts missed Pongs: it must be off.
    async with serve(echo, address, int(port), ping_interval=None) as server, Heartbeat(server, **handlers):
        logger.info("listening on %s", endpoint(server.sockets[0].getsockname()))
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:3]))
