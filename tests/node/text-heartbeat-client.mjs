// Clients with text heartbeats, as their wire formats are documented; each also says what looks like a heartbeat and is none.
//
// Usage: node text-heartbeat-client.mjs KIND HOST:PORT INTERVAL_MS
//
// The kinds of text-heartbeat-host.mjs, and:
// engine.io-3  protocol revision 3: the client asks with "2", the server answers "3"
// socket.io    the npm package socket.io-client, which begins with polling and probes the WebSocket ("2probe")
import { load, say } from './events.mjs';

const [kind, address, intervalMs] = process.argv.slice(2);
const RECORD_SEPARATOR = '\u001e';
// Nothing of what an application says may be found anywhere outside its connection.
const SECRET = 'hunter2';

const chat = (send) => {
  const lines = [
    JSON.stringify({ type: 'message', text: 'ping', secret: SECRET }),
    JSON.stringify({ text: '"type":"pong"', type: SECRET }),
    `42["ping","${SECRET}"]`,
    'pingu',
  ];
  let next = 0;
  setInterval(() => send(lines[next++ % lines.length]), 170);
};

if (kind === 'socket.io') {
  const { io } = load('socket.io-client');
  const socket = io(`http://${address}`);
  socket.on('connect', () => setInterval(() => socket.emit('chat', SECRET), 170));
} else {
  const { WebSocket } = load('ws');
  const query = kind === 'engine.io-3' ? '/socket.io/?EIO=3&transport=websocket' : '/';
  const socket = new WebSocket(`ws://${address}${query}`, { perMessageDeflate: false });
  let count = 0;
  const phoenix = (topic, event, payload) => {
    count += 1;
    const ref = String(count);
    return kind === 'phoenix'
      ? JSON.stringify([null, ref, topic, event, payload])
      : JSON.stringify({ topic, event, payload, ref });
  };
  const questions = {
    json: () => JSON.stringify({ at: Date.now(), type: 'ping' }),
    phoenix: () => phoenix('phoenix', 'heartbeat', {}),
    'phoenix-v1': () => phoenix('phoenix', 'heartbeat', {}),
    signalr: () => `{"type":6}${RECORD_SEPARATOR}`,
    'engine.io-3': () => '2',
  };
  const answers = {
    'ping-pong': (text) => (text === 'ping' ? 'pong' : undefined),
    custom: (text) => (text.startsWith('beat?') ? text.replace('?', '!') : undefined),
  };
  socket.on('open', () => {
    const port = socket._socket.localPort;
    const question = questions[kind];
    if (question) {
      setInterval(() => {
        say(port, 'ping', { missed: 1, buffered_bytes: 0 });
        socket.send(question());
      }, Number(intervalMs));
    }
    if (kind.startsWith('phoenix')) {
      setInterval(() => socket.send(phoenix('room:phoenix', 'shout', { heartbeat: SECRET })), 170);
    } else if (kind !== 'engine.io-3') {
      chat((text) => socket.send(text));
    }
  });
  socket.on('message', (data) => {
    const answer = answers[kind]?.(data.toString());
    if (answer !== undefined) socket.send(answer);
  });
  socket.on('error', () => {}); // 'close' follows
  socket.on('close', () => process.exit(0));
}
