"""What all hosts here share: events as lines of JSON like those of the host in src/mux, and the burst that they send."""

import asyncio
import functools
import json
import time

# Path that clients upgrade at.
PATH = "/api/remote.mux"

# The sizes of src/mux: measured snapshots in kilobytes, scaled to one killed connection's bytes.
MEASURED_KB = [1420, 1120, 420, 1150, 1220, 1000, 1770, 1680, 1280, 2270, 1660, 1300]
BURST_BYTES = 27_840_800
SIZES = [size * BURST_BYTES // sum(MEASURED_KB) for size in MEASURED_KB]
SIZES[11] += BURST_BYTES - sum(SIZES)


def say(peer_port, event, **more):
    """Prints an event with its time; `time.monotonic_ns` is CLOCK_MONOTONIC."""
    at_ns = time.monotonic_ns()
    print(json.dumps({"at_ns": at_ns, "peer_port": peer_port, "event": event, **more}), flush=True)


@functools.cache
def payload(count):
    """Bytes that look like empty Ping frames: a parser that guesses would see Pings.

    Made once, because making megabytes blocks the event loop, and with it the heartbeats of all others.
    """
    return (b"\x89\x00" * ((count + 1) // 2))[:count]


class Connection:
    """What a host knows of one client, for its events."""

    def __init__(self, peer_port, transport):
        self.peer_port = peer_port
        self.transport = transport
        self.opened_ns = time.monotonic_ns()
        self.pongs = 0
        say(peer_port, "opened")

    def buffered_bytes(self):
        """Bytes that wait in the event loop's transport and that the kernel has not taken."""
        return self.transport.get_write_buffer_size()

    def ping(self):
        """The library sends a Ping."""
        say(self.peer_port, "ping", missed=1, buffered_bytes=self.buffered_bytes())

    def pong(self):
        """The library was given a Pong."""
        self.pongs += 1
        say(self.peer_port, "pong")

    def killed(self):
        """The library's heartbeat ended the connection."""
        lifetime_ms = (time.monotonic_ns() - self.opened_ns) // 1_000_000
        more = {"lifetime_ms": lifetime_ms, "pongs": self.pongs}
        say(self.peer_port, "killed", missed=1, buffered_bytes=self.buffered_bytes(), **more)

    def closed(self):
        """The connection is over on the host's side."""
        say(self.peer_port, "closed")

    def answer(self, text):
        """Gives the messages that a client asks for in a text message; any other message is a session's own data."""
        try:
            ask = json.loads(text)
        except ValueError:
            return []
        sizes = {"follow": SIZES, "bytes": [ask.get("bytes", 0)]}.get(ask.get("ask"), [])
        if sizes:
            say(self.peer_port, "queued", bytes=sum(sizes))
        return [payload(size) for size in sizes]


class Sending:
    """Messages on their way, all at once, as a host with a single write chain has it: nothing waits for the peer."""

    def __init__(self):
        self.tasks = set()

    def start(self, coroutine):
        """Sends one."""
        task = asyncio.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.sent)

    def sent(self, task):
        """One has left, or its client has."""
        self.tasks.discard(task)
        # Asked for, because asyncio complains of errors that nobody looked at: a client that is gone is no news.
        if not task.cancelled():
            task.exception()


for size in SIZES:
    payload(size)
