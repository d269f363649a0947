// What all hosts here share: events as lines of JSON like those of the host in src/mux, and the burst that they send.
import { createRequire } from 'node:module';
import { join } from 'node:path';

// Path that clients upgrade at.
export const path = '/api/remote.mux';

// The sizes of src/mux: measured snapshots in kilobytes, scaled to one killed connection's bytes.
const measuredKb = [1420, 1120, 420, 1150, 1220, 1000, 1770, 1680, 1280, 2270, 1660, 1300];
export const burstBytes = 27840800;
const measured = measuredKb.reduce((sum, size) => sum + size, 0);
const sizes = measuredKb.map((size) => Math.floor((size * burstBytes) / measured));
sizes[11] += burstBytes - sizes.reduce((sum, size) => sum + size, 0);

// An npm package of the folder that has node_modules, which is the working directory.
export const load = (name) => createRequire(join(process.cwd(), 'package.json'))(name);

export const say = (peerPort, event, more = {}) => {
  // hrtime is CLOCK_MONOTONIC; JSON has no 64-bit integers, so the digits are put in as text.
  const line = JSON.stringify({ at_ns: '@', peer_port: peerPort, event, ...more });
  process.stdout.write(`${line.replace('"@"', process.hrtime.bigint().toString())}\n`);
};

// Bytes that look like empty Ping frames: a parser that guesses would see Pings.
const payload = (bytes) => Buffer.alloc(bytes, Buffer.from([0x89, 0x00]));

// Serves one client of a server of the package ws, and says what happens to it. What the events need is kept in members
// of the socket. `onPong` is called for each Pong.
export const serve = (socket, request, onPong = () => {}) => {
  const peerPort = request.socket.remotePort;
  Object.assign(socket, { peerPort, pongs: 0, openedAt: performance.now() });
  say(peerPort, 'opened');
  socket.on('pong', () => {
    onPong();
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
};

// Says that the host gives this socket up.
export const sayKilled = (socket, missed, buffered_bytes) => {
  const lifetime_ms = Math.round(performance.now() - socket.openedAt);
  say(socket.peerPort, 'killed', { missed, buffered_bytes, lifetime_ms, pongs: socket.pongs });
};

// Does what a client asks for in a text message. Any other message is a session's own data.
export const answer = (peerPort, text, send, leave) => {
  let ask;
  try {
    ask = JSON.parse(text);
  } catch {
    return;
  }
  if (ask.ask === 'follow') {
    say(peerPort, 'queued', { bytes: burstBytes });
    sizes.forEach((bytes) => send(payload(bytes)));
  } else if (ask.ask === 'bytes') {
    say(peerPort, 'queued', { bytes: ask.bytes });
    send(payload(ask.bytes));
  } else if (ask.ask === 'leave') {
    say(peerPort, 'closing', { code: ask.code });
    leave(ask.code, ask.reason);
  }
};
