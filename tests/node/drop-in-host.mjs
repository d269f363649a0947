// The mux host with the heartbeat of sidecar/clients/node in place of its own watchdog: it asks the sidecar before it kills.
//
// Usage: node drop-in-host.mjs ADDRESS; the folder that has node_modules/ws is the working directory.
import { createServer } from 'node:http';

import { startHeartbeat } from '../../sidecar/clients/node/index.mjs';
import { load, path, say, sayKilled, serve } from './events.mjs';

const { WebSocketServer } = load('ws');

const address = process.argv[2];
const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => serve(socket, request));

startHeartbeat(sockets, {
  onKill: ({ socket, code, missed, bufferedBytes }) => {
    sayKilled(socket, missed, bufferedBytes);
    say(socket.peerPort, 'closing', { code });
  },
  onFallback: ({ socket, message }) => say(socket?.peerPort ?? 0, 'fell_back', { reason: message }),
  onRecover: ({ socket }) => say(socket?.peerPort ?? 0, 'recovered'),
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
