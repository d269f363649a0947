"""The heartbeat of aiohttp's WebSocket server. The library's own timers decide; this only says what they did.

Usage: python3 aiohttp-host.py ADDRESS HEARTBEAT_S
"""

import asyncio
import sys

from aiohttp import WSMsgType, web

from events import PATH, Connection, Sending, say


def handler(heartbeat_s):
    """Serves one client."""

    async def serve(request):
        # Without `autoping` the library hands over Pings and Pongs. Its heartbeat rests on bytes and not on Pongs, so
        # that changes nothing of it.
        socket = web.WebSocketResponse(heartbeat=heartbeat_s, autoping=False, compress=False)
        await socket.prepare(request)
        connection = Connection(request.transport.get_extra_info("peername")[1], request.transport)
        sending = Sending()
        try:
            while True:
                message = await socket.receive()
                if message.type is WSMsgType.PONG:
                    connection.pong()
                elif message.type is WSMsgType.PING:
                    await socket.pong(message.data)
                elif message.type is WSMsgType.TEXT:
                    for data in connection.answer(message.data):
                        sending.start(socket.send_bytes(data))
                elif message.type is WSMsgType.ERROR and isinstance(message.data, asyncio.TimeoutError):
                    connection.killed()
                    break
                elif message.type is not WSMsgType.BINARY:
                    break
        finally:
            connection.closed()
        return socket

    return serve


async def main():
    address, heartbeat_s = sys.argv[1], float(sys.argv[2])
    application = web.Application()
    application.router.add_get(PATH, handler(heartbeat_s))
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, address, 0).start()
    say(0, "listening", port=runner.addresses[0][1])
    await asyncio.Event().wait()


asyncio.run(main())
