"""How the hosts on the package websockets serve their clients, whatever heartbeat they have."""

from websockets.exceptions import ConnectionClosed

from events import Connection, Sending

# By the library's id of the connection.
CONNECTIONS = {}


async def handler(socket):
    """Serves one client."""
    connection = Connection(socket.remote_address[1], socket.transport)
    CONNECTIONS[socket.id] = connection
    sending = Sending()
    try:
        async for message in socket:
            if isinstance(message, str):
                for data in connection.answer(message):
                    sending.start(socket.send(data))
    except ConnectionClosed:
        pass
    finally:
        connection.closed()
        del CONNECTIONS[socket.id]
