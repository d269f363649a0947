// The heartbeat of the npm package engine.io (below socket.io): text packets "2" (ping) and "3" (pong) in WebSocket
// messages, protocol 4; a client may ask for protocol 3, in which it asks and the host answers. The library's own timers decide; this program only says what they did.
//
// Usage: node engine-io-host.mjs ADDRESS PING_INTERVAL_MS PING_TIMEOUT_MS; the library's defaults are 25000 and 20000.
import { createServer } from 'node:http';

import { answer, load, path, say } from './events.mjs';

const { Server } = load('engine.io');

const [address, pingInterval, pingTimeout] = process.argv.slice(2);

const server = createServer();
const engine = new Server({
  pingInterval: Number(pingInterval),
  pingTimeout: Number(pingTimeout),
  transports: ['websocket'],
  allowEIO3: true,
});
engine.attach(server, { path, addTrailingSlash: false });

engine.on('connection', (socket) => {
  // The ws socket below: its bufferedAmount is what the kernel has not taken.
  const websocket = socket.request.websocket;
  const peerPort = socket.request.socket.remotePort;
  const openedAt = performance.now();
  let pongs = 0;
  say(peerPort, 'opened');
  socket.on('packetCreate', ({ type }) => {
    if (type === 'ping') say(peerPort, 'ping', { missed: 1, buffered_bytes: websocket.bufferedAmount });
  });
  // Comes before the library acts upon the packet.
  socket.on('packet', ({ type }) => {
    if (type !== 'pong') return;
    pongs += 1;
    say(peerPort, 'pong');
  });
  socket.on('message', (data) => {
    if (typeof data !== 'string') return;
    answer(peerPort, data, (bytes) => socket.send(bytes), () => socket.close());
  });
  socket.on('close', (reason) => {
    if (reason === 'ping timeout') {
      const lifetime_ms = Math.round(performance.now() - openedAt);
      say(peerPort, 'killed', { missed: 1, buffered_bytes: websocket.bufferedAmount, lifetime_ms, pongs });
    }
  });
  // After 'ping timeout' the library sends a Close frame and ws waits for the peer's, 30 s by default.
  websocket.on('close', () => say(peerPort, 'closed'));
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
