"""A host on the Python package websockets with the heartbeat of sidecar/clients/python: it asks the sidecar before it kills.

Usage: python3 drop-in-host.py ADDRESS
"""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sidecar" / "clients" / "python"))

from heartbeat import Heartbeat  # noqa: E402
from websockets.asyncio.server import serve  # noqa: E402
from websockets.exceptions import ConnectionClosed  # noqa: E402

from events import Connection, say  # noqa: E402

CONNECTIONS = {}


class TellingHeartbeat(Heartbeat):
    """The same, and says which Pongs came."""

    def heard(self, watched):
        super().heard(watched)
        CONNECTIONS[watched.connection.id].pong()


async def handler(socket):
    """Serves one client."""
    connection = Connection(socket.remote_address[1], socket.transport)
    CONNECTIONS[socket.id] = connection
    sending = set()

    def sent(task):
        sending.discard(task)
        # Asked for, because asyncio complains of errors that nobody looked at: a client that is gone is no news.
        if not task.cancelled():
            task.exception()

    try:
        async for message in socket:
            if isinstance(message, str):
                for data in connection.answer(message):
                    # All at once, as a host with a single write chain has it: nothing waits for the peer.
                    task = asyncio.create_task(socket.send(data))
                    sending.add(task)
                    task.add_done_callback(sent)
    except ConnectionClosed:
        pass
    finally:
        connection.closed()
        del CONNECTIONS[socket.id]


def on_kill(kill):
    """A connection is being closed."""
    connection = CONNECTIONS[kill.connection.id]
    connection.killed()
    say(connection.peer_port, "closing", code=kill.code)


async def main():
    async with serve(handler, sys.argv[1], 0, ping_interval=None, compression=None) as server:
        handlers = {
            "on_kill": on_kill,
            "on_fallback": lambda why: say(0, "fell_back", reason=why),
            "on_recover": lambda: say(0, "recovered"),
        }
        async with TellingHeartbeat(server, **handlers):
            say(0, "listening", port=server.sockets[0].getsockname()[1])
            await asyncio.Event().wait()


asyncio.run(main())
