// The mux host of ackbeat's main story on Node.js: one WebSocket per client, all sessions' data on one write chain, and
// a watchdog that counts missed Pongs. It speaks the same JSON as the host in src/mux (asks in, events out).
//
// Usage: node mux-host.mjs ADDRESS; the folder that has node_modules/ws is the working directory.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { WebSocketServer } = createRequire(join(process.cwd(), 'package.json'))('ws');

const websocketHeartbeatIntervalMs = 2000;
const missedMax = 2;
const path = '/api/remote.mux';
const address = process.argv[2];
// The sizes of src/mux: measured snapshots in kilobytes, scaled to one killed connection's bytes.
const measuredKb = [1420, 1120, 420, 1150, 1220, 1000, 1770, 1680, 1280, 2270, 1660, 1300];
const burstBytes = 27840800;
const measured = measuredKb.reduce((sum, size) => sum + size, 0);
const sizes = measuredKb.map((size) => Math.floor((size * burstBytes) / measured));
sizes[11] += burstBytes - sizes.reduce((sum, size) => sum + size, 0);

const say = (peerPort, event, more = {}) => {
  // hrtime is CLOCK_MONOTONIC; JSON has no 64-bit integers, so the digits are put in as text.
  const line = JSON.stringify({ at_ns: '@', peer_port: peerPort, event, ...more });
  process.stdout.write(`${line.replace('"@"', process.hrtime.bigint().toString())}\n`);
};

// Bytes that look like empty Ping frames: a parser that guesses would see Pings.
const payload = (bytes) => Buffer.alloc(bytes, Buffer.from([0x89, 0x00]));

const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  const peerPort = request.socket.remotePort;
  Object.assign(socket, { peerPort, missed: 0, pongs: 0, openedAt: performance.now() });
  say(peerPort, 'opened');
  const send = (bytes) => socket.send(payload(bytes), { binary: true });
  socket.on('pong', () => {
    socket.missed = 0;
    socket.pongs += 1;
    say(peerPort, 'pong');
  });
  socket.on('message', (data, isBinary) => {
    if (isBinary) return;
    let ask;
    try {
      ask = JSON.parse(data.toString());
    } catch {
      return; // a session's own data
    }
    if (ask.ask === 'follow') {
      say(peerPort, 'queued', { bytes: burstBytes });
      sizes.forEach(send);
    } else if (ask.ask === 'bytes') {
      say(peerPort, 'queued', { bytes: ask.bytes });
      send(ask.bytes);
    } else if (ask.ask === 'leave') {
      say(peerPort, 'closing', { code: ask.code });
      socket.close(ask.code, ask.reason);
    }
  });
  socket.on('error', () => {}); // a client that resets; 'close' follows
  socket.on('close', () => say(peerPort, 'closed'));
});

setInterval(() => {
  for (const socket of sockets.clients) {
    if (socket.readyState !== socket.OPEN) continue;
    if (socket.missed >= missedMax) {
      setImmediate(() => {
        if (socket.readyState !== socket.OPEN) return;
        say(socket.peerPort, 'killed', {
          missed: socket.missed,
          buffered_bytes: socket.bufferedAmount,
          lifetime_ms: Math.round(performance.now() - socket.openedAt),
          pongs: socket.pongs,
        });
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
