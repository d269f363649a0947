// A ws server, its clients, and waiting for what they do.
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';

// ws is installed in the folder that the tests are started in: here, or where the other tests' packages are.
export const ws = createRequire(join(process.cwd(), 'package.json'))('ws');
export const { WebSocket, WebSocketServer } = ws;

// Machines are busy: everything that must happen may take this long.
export const DEADLINE_MS = 30_000;
// Short enough for the tests, long enough for loopback on a busy machine.
export const INTERVAL_MS = 100;

/** Waits until `condition` gives something, and gives that. */
export const until = async (what, condition) => {
  const deadline = performance.now() + DEADLINE_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (performance.now() > deadline) throw new Error(`${what} did not happen within ${DEADLINE_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

/** A ws server on `host`; `stop` ends it and all its sockets. */
export const startServer = async ({ host = '127.0.0.1', server = createServer(), ...options } = {}) => {
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, ...options });
  const all = new Set();
  sockets.on('connection', (socket) => {
    all.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => all.delete(socket));
  });
  server.listen(0, host);
  await once(server, 'listening');
  const stop = () => {
    for (const socket of all) socket.terminate();
    server.closeAllConnections?.();
    return new Promise((resolve) => server.close(resolve));
  };
  return { sockets, all, port: server.address().port, stop };
};

/** A client. A mute one answers no Ping; a deaf one does not even answer a Close frame, as one that is gone. */
export const connect = async (port, { host = '127.0.0.1', mute = false, deaf = false, scheme = 'ws', ...more } = {}) => {
  const client = new WebSocket(`${scheme}://${host}:${port}/`, { autoPong: !mute && !deaf, ...more });
  client.on('error', () => {});
  client.pings = 0;
  client.on('ping', () => (client.pings += 1));
  client.ended = new Promise((resolve) => {
    client.on('close', (code, reason) => resolve({ code, reason: reason.toString() }));
  });
  await once(client, 'open');
  client.localPort = client._socket.localPort;
  if (deaf) client._socket.pause();
  return client;
};

/** Handlers that keep what they were told. */
export const listener = () => {
  const told = { kills: [], verdicts: [], fallbacks: [], recoveries: [] };
  return {
    told,
    handlers: {
      onKill: (kill) => told.kills.push(kill),
      onVerdict: (judged) => told.verdicts.push(judged),
      onFallback: (fallback) => told.fallbacks.push(fallback),
      onRecover: (about) => told.recoveries.push(about),
    },
  };
};
