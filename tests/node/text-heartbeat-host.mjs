// Hosts with text heartbeats, as their wire formats are documented; each is what the server of that name writes and awaits.
//
// Usage: node text-heartbeat-host.mjs KIND ADDRESS INTERVAL_MS TIMEOUT_MS
//
// ping-pong   the host asks with the text `ping` every interval; `pong` answers
// json        the client asks with {"type":"ping",...}; the host answers {"type":"pong"}
// phoenix     the client sends the event `heartbeat` on the topic `phoenix`, the host answers `phx_reply` (serializer 2.0.0)
// phoenix-v1  the same with serializer 1.0.0
// signalr     each side sends {"type":6} and 0x1e every interval
// custom      the host asks with `beat?7`, counting; `beat!7` answers
//
// Whoever was not heard for TIMEOUT_MS is closed. Everything else that comes is the application's, and is answered.
import { createServer } from 'node:http';

import { load, say } from './events.mjs';

const { WebSocketServer } = load('ws');

const [kind, address, intervalMs, timeoutMs] = process.argv.slice(2);
const RECORD_SEPARATOR = '\u001e';

const parse = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
};

// What the host asks by itself; what it answers (undefined: nothing of this kind); whether a text is a heartbeat at all.
const phoenix = {
  read: (text) => {
    const [join, ref, topic, event, payload] = parse(text) ?? [];
    return { join, ref, topic, event, payload };
  },
  write: ({ join, ref, topic, event, payload }) => JSON.stringify([join ?? null, ref, topic, event, payload]),
};
const phoenixV1 = { read: (text) => parse(text) ?? {}, write: (message) => JSON.stringify(message) };
const kinds = {
  'ping-pong': { question: () => 'ping', isHeard: (text) => text === 'pong' },
  json: {
    isHeard: (text) => parse(text)?.type === 'ping',
    answer: (text) => JSON.stringify({ at: Date.now(), type: 'pong', of: parse(text).at }),
  },
  signalr: {
    question: () => `{"type":6}${RECORD_SEPARATOR}`,
    isHeard: (text) => text === `{"type":6}${RECORD_SEPARATOR}`,
  },
  custom: { question: (count) => `beat?${count}`, isHeard: (text) => text.startsWith('beat!') },
};
for (const [name, serializer] of [['phoenix', phoenix], ['phoenix-v1', phoenixV1]]) {
  const reply = (text) => {
    const { join, ref, topic } = serializer.read(text);
    return serializer.write({ join, topic, event: 'phx_reply', payload: { response: {}, status: 'ok' }, ref });
  };
  kinds[name] = {
    isHeard: (text) => serializer.read(text).topic === 'phoenix' && serializer.read(text).event === 'heartbeat',
    answer: reply,
    // A channel's own message is answered by the same event, on its own topic.
    other: (text) => (serializer.read(text).event === 'shout' ? reply(text) : undefined),
  };
}
const { question, answer, isHeard, other } = kinds[kind];

const server = createServer();
const sockets = new WebSocketServer({ server, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  const peerPort = request.socket.remotePort;
  let heardAt = performance.now();
  let count = 0;
  say(peerPort, 'opened');
  const asking = question && setInterval(() => {
    count += 1;
    say(peerPort, 'ping', { missed: 1, buffered_bytes: socket.bufferedAmount });
    socket.send(question(count));
  }, Number(intervalMs));
  const watching = setInterval(() => {
    if (performance.now() - heardAt < Number(timeoutMs)) return;
    say(peerPort, 'killed', { missed: 1, buffered_bytes: socket.bufferedAmount, lifetime_ms: 0, pongs: count });
    socket.terminate();
  }, 50);
  socket.on('message', (data) => {
    const text = data.toString();
    if (isHeard(text)) {
      heardAt = performance.now();
      say(peerPort, 'pong');
      if (answer) socket.send(answer(text));
      return;
    }
    const reply = other?.(text);
    if (reply !== undefined) socket.send(reply);
  });
  socket.on('error', () => {}); // 'close' follows
  socket.on('close', () => {
    clearInterval(asking);
    clearInterval(watching);
    say(peerPort, 'closed');
  });
});

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
