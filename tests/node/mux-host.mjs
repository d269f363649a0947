// The mux host of ackbeat's main story on Node.js: one WebSocket per client, all sessions' data on one write chain, and
// a watchdog that counts missed Pongs. It speaks the same JSON as the host in src/mux (asks in, events out).
//
// Usage: node mux-host.mjs ADDRESS [INTERVAL_MS [MISSED_MAX]]; the folder that has node_modules/ws is the working directory.
// With Infinity as MISSED_MAX the watchdog closes nothing.
import { createServer } from 'node:http';

import { load, path, say, sayKilled, serve } from './events.mjs';

const { WebSocketServer } = load('ws');

const [address, intervalMs = '2000', counted = '2'] = process.argv.slice(2);
const websocketHeartbeatIntervalMs = Number(intervalMs);
const missedMax = Number(counted);

const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  socket.missed = 0;
  serve(socket, request, () => {
    socket.missed = 0;
  });
});

setInterval(() => {
  for (const socket of sockets.clients) {
    if (socket.readyState !== socket.OPEN) continue;
    if (socket.missed >= missedMax) {
      setImmediate(() => {
        if (socket.readyState !== socket.OPEN) return;
        sayKilled(socket, socket.missed, socket.bufferedAmount);
        socket.terminate();
      });
    } else {
      socket.missed += 1;
      say(socket.peerPort, 'ping', { missed: socket.missed, buffered_bytes: socket.bufferedAmount });
      socket.ping();
    }
  }
}, websocketHeartbeatIntervalMs);

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
