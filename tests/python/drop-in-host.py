"""A host on the Python package websockets with the heartbeat of sidecar/clients/python: it asks the sidecar before it kills.

Usage: python3 drop-in-host.py ADDRESS
"""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sidecar" / "clients" / "python"))

from heartbeat import Heartbeat  # noqa: E402
from websockets.asyncio.server import serve  # noqa: E402

from events import say  # noqa: E402
from serving import CONNECTIONS, handler  # noqa: E402


class TellingHeartbeat(Heartbeat):
    """The same, and says which Pongs came."""

    def heard(self, watched):
        super().heard(watched)
        CONNECTIONS[watched.connection.id].pong()

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
