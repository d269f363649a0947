// A host with the npm package socket.io, whose heartbeat is engine.io's below it: text packets "2" (ping) and "3" (pong).
// Protocol 4: the server asks; protocol 3, which old clients speak: the client does. The library's own timers decide.
//
// Usage: node socket-io-host.mjs ADDRESS PING_INTERVAL_MS PING_TIMEOUT_MS; the library's defaults are 25000 and 20000.
import { createServer } from 'node:http';

import { load, say } from './events.mjs';

const { Server } = load('socket.io');

const [address, pingInterval, pingTimeout] = process.argv.slice(2);

const server = createServer();
const io = new Server(server, {
  pingInterval: Number(pingInterval),
  pingTimeout: Number(pingTimeout),
  allowEIO3: true,
});

// One of the transports may be polling at first; the WebSocket's port is what the test watches.
const portOf = (socket) => socket.transport.socket?._socket?.remotePort ?? 0;

io.engine.on('connection', (socket) => {
  let port = portOf(socket);
  if (port !== 0) say(port, 'opened');
  socket.on('upgrade', () => {
    port = portOf(socket);
    say(port, 'opened');
  });
  socket.on('packetCreate', ({ type }) => {
    if (type === 'ping') say(port, 'ping', { missed: 1, buffered_bytes: 0 });
  });
  socket.on('packet', ({ type }) => {
    if (type === 'pong' || type === 'ping') say(port, 'pong');
  });
  socket.on('close', (reason) => {
    if (reason === 'ping timeout') say(port, 'killed', { missed: 1, buffered_bytes: 0, lifetime_ms: 0, pongs: 0 });
    say(port, 'closed');
  });
});

// Messages of the application, which look like heartbeats to whoever reads carelessly.
io.on('connection', (socket) => {
  socket.on('chat', (text) => socket.emit('chat', text, { type: 'ping' }));
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
