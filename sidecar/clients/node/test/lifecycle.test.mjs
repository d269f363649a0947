import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { startHeartbeat } from '../index.mjs';
import { answers, startSidecar } from './fake-sidecar.mjs';
import { DEADLINE_MS, INTERVAL_MS, connect, startServer, until } from './world.mjs';

test('both kinds of import give the same function', () => {
  assert.equal(createRequire(import.meta.url)('../index.cjs').startHeartbeat, startHeartbeat);
});

test('sockets that close are forgotten', async (t) => {
  const sidecar = await startSidecar({ answer: answers.alive });
  const server = await startServer();
  const heartbeat = startHeartbeat(server.sockets, { intervalMs: INTERVAL_MS, sidecar: sidecar.address });
  t.after(async () => {
    heartbeat.stop();
    await server.stop();
    await sidecar.stop();
  });
  let last;
  for (let round = 0; round < 20; round += 1) {
    const clients = await Promise.all(Array.from({ length: 50 }, () => connect(server.port, { mute: round % 2 === 0 })));
    [last] = server.all;
    await until('all of them', () => heartbeat.watched === 50);
    // Half of them say goodbye.
    for (const [index, client] of clients.entries()) index % 2 === 0 ? client.close() : client.terminate();
    await until('none of them', () => heartbeat.watched === 0);
  }
  assert.equal(last.listenerCount('pong'), 0, 'nothing listens to a socket that is gone');
  const asked = sidecar.questions.length;
  await new Promise((resolve) => setTimeout(resolve, 5 * INTERVAL_MS));
  assert.equal(sidecar.questions.length, asked, 'nobody asks about them');
});

test('sockets from before the start are watched, and after the end nobody is', async (t) => {
  const sidecar = await startSidecar({ answer: answers.gone });
  const server = await startServer();
  t.after(async () => {
    await server.stop();
    await sidecar.stop();
  });
  const client = await connect(server.port, { mute: true });
  const [socket] = server.all;
  const listeners = socket.listenerCount('close');
  const heartbeat = startHeartbeat(server.sockets, { intervalMs: INTERVAL_MS, sidecar: sidecar.address });
  assert.equal(heartbeat.watched, 1);
  await until('a Ping', () => client.pings > 0);
  heartbeat.stop();
  heartbeat.stop();
  assert.equal(heartbeat.watched, 0);
  assert.equal(server.sockets.listenerCount('connection'), 1);
  assert.equal(socket.listenerCount('close'), listeners);
  const { pings } = client;
  await new Promise((resolve) => setTimeout(resolve, 5 * INTERVAL_MS));
  assert.ok(client.pings <= pings + 1, 'no more Pings than the one that was on its way');
  assert.equal(client.readyState, client.OPEN);
});

test('a server without client tracking', async (t) => {
  const sidecar = await startSidecar({ answer: answers.gone });
  const server = await startServer({ clientTracking: false });
  const heartbeat = startHeartbeat(server.sockets, { intervalMs: INTERVAL_MS, sidecar: sidecar.address });
  t.after(async () => {
    heartbeat.stop();
    await server.stop();
    await sidecar.stop();
  });
  const client = await connect(server.port, { mute: true });
  assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
});

test('a heartbeat that nobody stops keeps no process alive', async () => {
  // Ends its server and its socket while a question is under way, and never stops the heartbeat.
  const program = fileURLToPath(new URL('unstopped.mjs', import.meta.url));
  const child = spawn(process.execPath, [program], { stdio: ['ignore', 'inherit', 'inherit'] });
  const timer = setTimeout(() => child.kill('SIGKILL'), DEADLINE_MS);
  const [code, signal] = await once(child, 'exit');
  clearTimeout(timer);
  assert.deepEqual({ code, signal }, { code: 0, signal: null });
});
