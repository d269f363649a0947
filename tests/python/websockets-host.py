"""The keepalive of the Python package websockets. The library's own timers decide; this only says what they did.

Usage: python3 websockets-host.py ADDRESS PING_INTERVAL_S PING_TIMEOUT_S; the library's defaults are 20 and 20.
"""

import asyncio
import logging
import sys

from websockets.asyncio.server import serve
from websockets.frames import Frame, Opcode

from events import say
from serving import CONNECTIONS, handler


class Watch(logging.Handler):
    """Turns what the library logs of its keepalive into events."""

    def emit(self, record):
        connection = CONNECTIONS.get(record.websocket.id) if hasattr(record, "websocket") else None
        if connection is None:
            return
        if record.msg == "> %s":
            # A frame goes to the event loop's transport. The library begins to wait for the Pong only once that has
            # handed enough to the kernel.
            (frame,) = record.args
            if isinstance(frame, Frame) and frame.opcode is Opcode.PING:
                connection.ping()
        elif record.msg == "% received keepalive pong":
            connection.pong()
        elif record.msg == "- timed out waiting for keepalive pong":
            connection.killed()

async def main():
    address, ping_interval_s, ping_timeout_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    logger = logging.getLogger("websockets.server")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(Watch())
    options = {"ping_interval": ping_interval_s, "ping_timeout": ping_timeout_s, "compression": None}
    async with serve(handler, address, 0, logger=logger, **options) as server:
        say(0, "listening", port=server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()


asyncio.run(main())
