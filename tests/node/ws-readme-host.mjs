// The heartbeat that the README of the npm package ws recommends ("How to detect and close broken connections?"): a
// Pong sets isAlive, a tick clears it and sends a Ping, a tick that finds it cleared terminates.
//
// Usage: node ws-readme-host.mjs ADDRESS INTERVAL_MS; the README's interval is 30000.
import { createServer } from 'node:http';

import { answer, load, path, say } from './events.mjs';

const { WebSocketServer } = load('ws');

const [address, intervalMs] = process.argv.slice(2);

const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  const peerPort = request.socket.remotePort;
  Object.assign(socket, { peerPort, pongs: 0, openedAt: performance.now(), isAlive: true });
  say(peerPort, 'opened');
  socket.on('pong', () => {
    socket.isAlive = true;
    socket.pongs += 1;
    say(peerPort, 'pong');
  });
  socket.on('message', (data, isBinary) => {
    if (isBinary) return;
    const send = (bytes) => socket.send(bytes, { binary: true });
    answer(peerPort, data.toString(), send, (code, reason) => socket.close(code, reason));
  });
  socket.on('error', () => {}); // a client that resets; 'close' follows
  socket.on('close', () => say(peerPort, 'closed'));
});

setInterval(() => {
  sockets.clients.forEach((socket) => {
    const buffered_bytes = socket.bufferedAmount;
    if (socket.isAlive === false) {
      const lifetime_ms = Math.round(performance.now() - socket.openedAt);
      // Terminated already: its 'close' is on its way.
      if (socket.readyState === socket.OPEN) {
        say(socket.peerPort, 'killed', { missed: 1, buffered_bytes, lifetime_ms, pongs: socket.pongs });
      }
      return socket.terminate();
    }
    socket.isAlive = false;
    say(socket.peerPort, 'ping', { missed: 1, buffered_bytes });
    socket.ping();
  });
}, Number(intervalMs));

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
