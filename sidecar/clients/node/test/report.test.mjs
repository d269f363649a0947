import assert from 'node:assert/strict';
import { test } from 'node:test';

import { startHeartbeat } from '../index.mjs';
import { answers, startSidecar } from './fake-sidecar.mjs';
import { INTERVAL_MS, connect, startServer, until } from './world.mjs';

const scene = async (t, options, answer = answers.alive) => {
  const sidecar = await startSidecar({ answer });
  const server = await startServer();
  const heartbeat = startHeartbeat(server.sockets, { intervalMs: INTERVAL_MS, sidecar: sidecar.address, ...options });
  t.after(async () => {
    heartbeat.stop();
    await server.stop();
    await sidecar.stop();
  });
  return { sidecar, server, heartbeat };
};

test('Pings and Pongs are reported where that is asked for', async (t) => {
  const { sidecar, server, heartbeat } = await scene(t, { report: true });
  const client = await connect(server.port);
  const reports = await until('five Pongs', () => {
    return sidecar.reports.filter(({ kind }) => kind === 'pong').length >= 5 && [...sidecar.reports];
  });
  const pings = reports.filter(({ kind }) => kind === 'ping');
  const pongs = reports.filter(({ kind }) => kind === 'pong');
  assert.equal(reports.length, pings.length + pongs.length);
  for (const [index, pong] of pongs.entries()) assert.equal(pong.id, pings[index].id, 'a Pong has its Ping’s id');
  assert.equal(new Set(pings.map(({ id }) => id)).size, pings.length, 'no two Pings have the same');
  for (const { peer, local, age_ms, id } of reports) {
    assert.equal(peer, `127.0.0.1:${client.localPort}`);
    assert.equal(local, `127.0.0.1:${server.port}`);
    assert.ok(Number.isInteger(age_ms) && age_ms >= 0 && age_ms < 60_000, `${age_ms}`);
    assert.ok(id.length > 0 && id.length <= 125);
  }
  assert.equal(heartbeat.droppedHeartbeats, 0);
});

test('a Ping that the kernel has not taken is not reported', async (t) => {
  const { sidecar, server } = await scene(t, { report: true });
  const client = await connect(server.port);
  const [socket] = server.all;
  client.pause();
  socket.send(Buffer.alloc(32 * 1024 * 1024));
  await until('a question', () => sidecar.questions.length > 0);
  const pings = () => sidecar.reports.filter(({ kind }) => kind === 'ping').length;
  const before = pings();
  const asked = sidecar.questions.length;
  await until('five more questions', () => sidecar.questions.length >= asked + 5);
  assert.equal(pings(), before);
  client.resume();
  await until('the Ping once it is taken', () => pings() > before);
});

test('nothing is reported unasked but the Close frame, which may never reach the wire', async (t) => {
  const { sidecar, server } = await scene(t, {}, answers.gone);
  const client = await connect(server.port, { mute: true });
  await client.ended;
  const reports = await until('a report', () => sidecar.reports.length > 0 && [...sidecar.reports]);
  assert.deepEqual(reports, [
    {
      peer: `127.0.0.1:${client.localPort}`,
      local: `127.0.0.1:${server.port}`,
      kind: 'close',
      age_ms: 0,
      code: 1011,
      reason: 'heartbeat timeout',
    },
  ]);
});

test('what cannot be reported is counted', async (t) => {
  const { sidecar, server, heartbeat } = await scene(t, { report: true });
  await sidecar.stop();
  await connect(server.port);
  await until('losses', () => heartbeat.droppedHeartbeats >= 4);
});
