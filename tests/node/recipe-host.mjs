// The mux host of mux-host.mjs, with the question that the README of sidecar/clients/node has for hosts that keep their own
// watchdog. The question is taken from that README as it stands.
//
// Usage: node recipe-host.mjs ADDRESS; the folder that has node_modules/ws is the working directory.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

import { load, path, say, sayKilled, serve } from './events.mjs';

const { WebSocketServer } = load('ws');

const readme = readFileSync(new URL('../../sidecar/clients/node/README.md', import.meta.url), 'utf8');
const [, recipe] = readme.split('<!-- This block is run as it stands by a test. -->\n```js\n');
const isGone = new Function(`${recipe.split('```')[0]}\nreturn isGone;`)();

const address = process.argv[2];
const server = createServer();
const sockets = new WebSocketServer({ server, path, perMessageDeflate: false });

sockets.on('connection', (socket, request) => {
  Object.assign(socket, { request, missed: 0 });
  serve(socket, request, () => {
    socket.missed = 0;
  });
});

setInterval(() => {
  for (const socket of sockets.clients) {
    if (socket.readyState === socket.OPEN) void beat(socket);
  }
}, 2000);

const beat = async (socket) => {
  const { request, missed, peerPort } = socket;
  if (missed >= 2 && (await isGone(request.socket)) !== false) {
    sayKilled(socket, missed, socket.bufferedAmount);
    say(peerPort, 'closing', { code: 1011 });
    socket.close(1011, 'heartbeat timeout');
    setTimeout(() => socket.terminate(), 5000);
    return;
  }
  socket.missed += 1;
  socket.ping();
};

server.listen(0, address, () => say(0, 'listening', { port: server.address().port }));
