"""The demo's client: alive, and slower than what the host sends. Answers each Ping when it gets to it, and comes back
when the host closes. Python's standard library alone.
"""

import argparse
import base64
import os
import socket
import time

CLOSE, PING, PONG = 0x8, 0x9, 0xA


class Slowly:
    """Reads a socket at a rate, through a small receive buffer."""

    def __init__(self, connection, bytes_per_second):
        self.connection, self.rate = connection, bytes_per_second
        self.started, self.taken, self.held = time.monotonic(), 0, b""

    def read(self, size):
        while len(self.held) < size:
            ahead = self.taken / self.rate - (time.monotonic() - self.started)
            if ahead > 0:
                time.sleep(ahead)
            piece = self.connection.recv(16384)
            if not piece:
                raise ConnectionError("the host closed")
            self.taken += len(piece)
            self.held += piece
        answer, self.held = self.held[:size], self.held[size:]
        return answer

    def until(self, end):
        answer = b""
        while not answer.endswith(end):
            answer += self.read(1)
        return answer


def talk(options):
    """One connection, until the host ends it."""
    with socket.socket() as connection:
        # A small window: what the client has not read waits at the host, where a watchdog can misread it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 131072)
        connection.connect((options.host, options.port))
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(
            f"GET /demo HTTP/1.1\r\nHost: {options.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        slowly = Slowly(connection, options.read_bytes_per_second)
        slowly.until(b"\r\n\r\n")
        print("connected", flush=True)
        while True:
            first, second = slowly.read(2)
            opcode, size = first & 0x0F, second & 0x7F
            if size >= 126:
                size = int.from_bytes(slowly.read(2 if size == 126 else 8), "big")
            payload = slowly.read(size)
            if opcode == PING:
                # A mask of zeros is a mask: the payload goes as it is.
                connection.sendall(bytes([0x80 | PONG, 0x80 | len(payload)]) + bytes(4) + payload)
                print("answered a Ping", flush=True)
            elif opcode == CLOSE:
                raise ConnectionError("the host said goodbye")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--read-bytes-per-second", type=int, default=256 << 10)
    parser.add_argument("--once", action="store_true", help="do not come back")
    options = parser.parse_args()
    while True:
        started = time.monotonic()
        try:
            talk(options)
        except OSError as error:
            print(f"closed after {time.monotonic() - started:.1f} s, while reading: {error}", flush=True)
        if options.once:
            return
        time.sleep(2)


if __name__ == "__main__":
    main()
