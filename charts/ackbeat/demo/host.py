"""The demo's host: a WebSocket server that sends each client a burst and then Pings, and closes whoever missed two Pongs.

It counts absence, as many hosts do: its Pings wait behind its own burst, so it kills clients that are only behind.
Python's standard library alone.
"""

import argparse
import asyncio
import base64
import hashlib

MAGIC = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
BINARY, CLOSE, PING, PONG = 0x2, 0x8, 0x9, 0xA
CHUNK = bytes(65536)


def frame(opcode, payload=b""):
    """One unmasked frame, as servers send them."""
    size = len(payload)
    if size < 126:
        head = bytes([0x80 | opcode, size])
    elif size < 65536:
        head = bytes([0x80 | opcode, 126]) + size.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 127]) + size.to_bytes(8, "big")
    return head + payload


async def read_frame(reader):
    """Opcode and payload of one frame; clients mask theirs."""
    first, second = await reader.readexactly(2)
    size = second & 0x7F
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    mask = await reader.readexactly(4) if second & 0x80 else bytes(4)
    payload = await reader.readexactly(size)
    return first & 0x0F, bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))


async def upgrade(reader, writer):
    """Answers the upgrade request. Returns whether there is a WebSocket now (anything else is a question for health)."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    fields = (line.split(":", 1) for line in head.split("\r\n")[1:] if ":" in line)
    key = next((value for name, value in fields if name.lower() == "sec-websocket-key"), None)
    if key is None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return False
    accept = base64.b64encode(hashlib.sha1((key.strip() + MAGIC).encode()).digest()).decode()
    writer.write(
        f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n".encode()
    )
    return True


async def watch(writer, state, interval_s, name):
    """Sends a Ping each interval and closes the connection where two in a row stayed without a Pong."""
    while not writer.is_closing():
        await asyncio.sleep(interval_s)
        if state["missed"] >= 2:
            waiting = writer.transport.get_write_buffer_size()
            print(f"{name}: two Pongs missed, closing; {waiting} bytes still waited in this process", flush=True)
            state["closed"].set()
            # As a WebSocket library's terminate(): what waits in this process is thrown away.
            writer.transport.abort()
            return
        state["missed"] += 1
        writer.write(frame(PING))


async def serve(reader, writer, options):
    """One client from its upgrade to its end."""
    name = "{}:{}".format(*writer.get_extra_info("peername")[:2])
    state = {"missed": 0, "closed": asyncio.Event()}
    tasks = []
    try:
        if not await upgrade(reader, writer):
            return
        print(f"{name}: connected", flush=True)
        for _ in range(options.burst_bytes // len(CHUNK)):
            writer.write(frame(BINARY, CHUNK))
        tasks = [asyncio.create_task(watch(writer, state, options.ping_interval_ms / 1000, name))]
        while True:
            opcode, _ = await read_frame(reader)
            if opcode == PONG:
                state["missed"] = 0
            elif opcode == CLOSE:
                print(f"{name}: closed by the client", flush=True)
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        if not state["closed"].is_set():
            print(f"{name}: the client is gone", flush=True)
    finally:
        for task in tasks:
            task.cancel()
        writer.close()


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--ping-interval-ms", type=int, default=5000)
    parser.add_argument("--burst-bytes", type=int, default=32 << 20)
    options = parser.parse_args()
    server = await asyncio.start_server(lambda *both: serve(*both, options), options.address, options.port)
    print("listening on port", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
