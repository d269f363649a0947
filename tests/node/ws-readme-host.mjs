// The heartbeat that the README of the npm package ws recommends ("How to detect and close broken connections?"): a
// Pong sets isAlive, a tick clears it and sends a Ping, a tick that finds it cleared terminates.
//
// Usage: node ws-readme-host.mjs ADDRESS INTERVAL_MS; the README's interval is 30000.
import { createServer } from 'node:http';

import { load, path, say, sayKilled, serve } from './events.mjs';

const { WebSocketServer } = load('ws');

const [address, intervalMs] = process.argv.slice(2);

const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  socket.isAlive = true;
  serve(socket, request, () => {
    socket.isAlive = true;
  });
});

setInterval(() => {
  sockets.clients.forEach((socket) => {
    const buffered_bytes = socket.bufferedAmount;
    if (socket.isAlive === false) {
      // Terminated already: its 'close' is on its way.
      if (socket.readyState === socket.OPEN) sayKilled(socket, 1, buffered_bytes);
      return socket.terminate();
    }
    socket.isAlive = false;
    say(socket.peerPort, 'ping', { missed: 1, buffered_bytes });
    socket.ping();
  });
}, Number(intervalMs));

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
