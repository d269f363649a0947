// The mux host with the heartbeat of sidecar/clients/node in place of its own watchdog: it asks the sidecar before it kills.
//
// Usage: node drop-in-host.mjs ADDRESS; the folder that has node_modules/ws is the working directory.
import { createServer } from 'node:http';

import { startHeartbeat } from '../../sidecar/clients/node/index.mjs';
import { answer, load, path, say } from './events.mjs';

const { WebSocketServer } = load('ws');

const address = process.argv[2];
const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });
const facts = new Map();

sockets.on('connection', (socket, request) => {
  const peerPort = request.socket.remotePort;
  facts.set(socket, { peerPort, pongs: 0, openedAt: performance.now() });
  say(peerPort, 'opened');
  socket.on('pong', () => {
    facts.get(socket).pongs += 1;
    say(peerPort, 'pong');
  });
  socket.on('message', (data, isBinary) => {
    if (isBinary) return;
    const send = (bytes) => socket.send(bytes, { binary: true });
    answer(peerPort, data.toString(), send, (code, reason) => socket.close(code, reason));
  });
  socket.on('error', () => {}); // a client that resets; 'close' follows
  socket.on('close', () => {
    facts.delete(socket);
    say(peerPort, 'closed');
  });
});

startHeartbeat(sockets, {
  onKill: ({ socket, code, missed, bufferedBytes }) => {
    const { peerPort, pongs, openedAt } = facts.get(socket);
    const lifetime_ms = Math.round(performance.now() - openedAt);
    say(peerPort, 'killed', { missed, buffered_bytes: bufferedBytes, lifetime_ms, pongs });
    say(peerPort, 'closing', { code });
  },
  onFallback: ({ socket, message }) => say(facts.get(socket)?.peerPort ?? 0, 'fell_back', { reason: message }),
  onRecover: ({ socket }) => say(facts.get(socket)?.peerPort ?? 0, 'recovered'),
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
