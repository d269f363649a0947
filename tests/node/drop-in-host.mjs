// The mux host with the heartbeat of sidecar/clients/node in place of its own watchdog: it asks the sidecar before it kills.
//
// Usage: node drop-in-host.mjs ADDRESS [INTERVAL_MS KEY CERTIFICATE]; the folder that has node_modules/ws is the working
// directory. With the PEM files of a key and its certificate TLS ends here, and every Ping and Pong is reported.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';

import { startHeartbeat } from '../../sidecar/clients/node/index.mjs';
import { load, path, say, sayKilled, serve } from './events.mjs';

const { WebSocketServer } = load('ws');

const [address, intervalMs = '2000', key, certificate] = process.argv.slice(2);
const report = key !== undefined;
const server = report
  ? createTlsServer({ key: readFileSync(key), cert: readFileSync(certificate) })
  : createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => serve(socket, request));

startHeartbeat(sockets, {
  intervalMs: Number(intervalMs),
  report,
  onKill: ({ socket, code, missed, bufferedBytes }) => {
    sayKilled(socket, missed, bufferedBytes);
    say(socket.peerPort, 'closing', { code });
  },
  onFallback: ({ socket, message }) => say(socket?.peerPort ?? 0, 'fell_back', { reason: message }),
  onRecover: ({ socket }) => say(socket?.peerPort ?? 0, 'recovered'),
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
