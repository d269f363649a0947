"""How the hosts on the package websockets serve their clients, whatever heartbeat they have."""

import asyncio

from websockets.exceptions import ConnectionClosed

from events import Connection

# By the library's id of the connection.
CONNECTIONS = {}


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
