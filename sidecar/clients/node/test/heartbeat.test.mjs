import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { startHeartbeat } from '../index.mjs';
import { answers, gone, startSidecar } from './fake-sidecar.mjs';
import { DEADLINE_MS, INTERVAL_MS, connect, listener, startServer, until } from './world.mjs';

const WINDOW_MS = 3 * INTERVAL_MS;

/** A server with the heartbeat, a sidecar that answers `answer`, and everything that it told. */
const scene = async (t, { answer, options = {}, host, listen } = {}) => {
  const sidecar = await startSidecar({ answer, listen });
  const server = await startServer({ host });
  const { told, handlers } = listener();
  const heartbeat = startHeartbeat(server.sockets, {
    intervalMs: INTERVAL_MS,
    sidecar: sidecar.address,
    timeoutMs: DEADLINE_MS,
    ...handlers,
    ...options,
  });
  t.after(async () => {
    heartbeat.stop();
    await server.stop();
    await sidecar.stop();
  });
  return { sidecar, server, heartbeat, told };
};

test('a client that answers is never asked about', async (t) => {
  const { sidecar, server, told } = await scene(t, { answer: answers.gone });
  const client = await connect(server.port);
  await until('ten Pings', () => client.pings >= 10);
  // A busy machine may make a Pong late, but then the answer comes too late as well.
  assert.ok(sidecar.questions.length <= 3, `${sidecar.questions.length} questions`);
  assert.deepEqual(told.kills, []);
  assert.equal(client.readyState, client.OPEN);
});

test('a late Pong is no kill while the sidecar does not justify one', async (t) => {
  const { sidecar, server, told } = await scene(t, { answer: answers.alive });
  const client = await connect(server.port, { mute: true });
  const [socket] = server.all;
  await until('ten questions', () => sidecar.questions.length >= 10);
  assert.deepEqual(sidecar.questions[0], { peer: `127.0.0.1:${client.localPort}`, local: `127.0.0.1:${server.port}` });
  assert.deepEqual(told.kills, []);
  assert.equal(client.readyState, client.OPEN);
  assert.equal(told.verdicts[0].connection.verdict, 'congested');
  assert.equal(told.verdicts[0].socket, socket);
});

test('the first question comes after as many Pings as may be missed', async (t) => {
  const { sidecar, server } = await scene(t, { answer: answers.alive, options: { missed: 4 } });
  const client = await connect(server.port, { mute: true });
  await until('a question', () => sidecar.questions.length > 0);
  await until('the Pings before it', () => client.pings >= 4);
});

test('a justified kill is a Close frame, and a client that is there answers it', async (t) => {
  const { server, told } = await scene(t, { answer: answers.gone });
  const client = await connect(server.port, { mute: true });
  assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
  await until('the kill', () => told.kills.length > 0);
  const [{ socket, connection: answer, lastPongAgeMs, missed, ...kill }] = told.kills;
  assert.deepEqual(kill, {
    peer: `127.0.0.1:${client.localPort}`,
    local: `127.0.0.1:${server.port}`,
    by: 'verdict',
    code: 1011,
    reason: 'heartbeat timeout',
    bufferedBytes: 0,
  });
  assert.ok(lastPongAgeMs >= 2 * INTERVAL_MS, `${lastPongAgeMs}`);
  assert.ok(missed >= 2, `${missed}`);
  assert.equal(answer.verdict, 'unreachable');
  await until('the end on this side', () => socket.readyState === socket.CLOSED);
  assert.deepEqual(told.fallbacks, []);
});

test('the sidecar suggests what to close with', async (t) => {
  const suggested_close = { code: 4008, reason: 'no progress' };
  const answer = (response) => response.end(JSON.stringify(gone({ suggested_close })));
  const { server } = await scene(t, { answer });
  const client = await connect(server.port, { mute: true });
  assert.deepEqual(await client.ended, suggested_close);
});

for (const suggested_close of [null, { code: 1006, reason: '' }, { code: 1011, reason: 'x'.repeat(124) }, { code: '1011' }]) {
  test(`a suggestion that is no Close frame is not sent: ${JSON.stringify(suggested_close)?.slice(0, 40)}`, async (t) => {
    const answer = (response) => response.end(JSON.stringify(gone({ suggested_close })));
    const { server } = await scene(t, { answer });
    const client = await connect(server.port, { mute: true });
    assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
  });
}

test('a client that does not answer the Close frame is destroyed after its time', async (t) => {
  const closeTimeoutMs = 300;
  const { server, told } = await scene(t, { answer: answers.gone, options: { closeTimeoutMs } });
  await connect(server.port, { deaf: true });
  await until('the kill', () => told.kills.length > 0);
  const [{ socket }] = told.kills;
  assert.equal(socket.readyState, socket.CLOSING);
  const began = performance.now();
  await until('the end', () => socket.readyState === socket.CLOSED);
  assert.ok(performance.now() - began >= closeTimeoutMs / 2, 'it was given time to answer');
  assert.equal(told.kills.length, 1);
});

test('a Pong that comes while the sidecar is asked saves the client', async (t) => {
  let reply;
  const answer = (response) => (reply = () => answers.gone(response));
  const { server, told } = await scene(t, { answer });
  const client = await connect(server.port, { mute: true });
  const [socket] = server.all;
  await until('a question', () => reply !== undefined);
  const ponged = new Promise((resolve) => socket.once('pong', resolve));
  client.pong();
  await ponged;
  reply();
  await until('the answer', () => told.verdicts.length > 0);
  assert.deepEqual(told.kills, []);
  assert.equal(socket.readyState, socket.OPEN);
});

test('a socket that closes while the sidecar is asked is forgotten', async (t) => {
  let reply;
  const answer = (response) => (reply = () => answers.gone(response));
  const { server, told, heartbeat } = await scene(t, { answer });
  const client = await connect(server.port, { mute: true });
  await until('a question', () => reply !== undefined);
  client.terminate();
  await until('the end', () => heartbeat.watched === 0);
  reply();
  const other = await connect(server.port);
  await until('a few Pings of another', () => other.pings >= 3);
  assert.deepEqual(told.kills, []);
  assert.deepEqual(told.verdicts, []);
});

test('few questions are under way at once, each socket has one, and connections are kept', async (t) => {
  const answer = (response) => setTimeout(() => answers.alive(response), 20);
  const { sidecar, server } = await scene(t, { answer, options: { maxInFlight: 3 } });
  await Promise.all(Array.from({ length: 30 }, () => connect(server.port, { mute: true })));
  await until('questions about all', () => new Set(sidecar.questions.map(({ peer }) => peer)).size === 30);
  await until('a hundred questions', () => sidecar.questions.length >= 100);
  assert.ok(sidecar.mostAtOnce <= 3, `${sidecar.mostAtOnce} at once`);
  assert.ok(sidecar.connections <= 6, `${sidecar.connections} connections for ${sidecar.questions.length} questions`);
});

test('a unix socket', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'ackbeat-heartbeat-'));
  t.after(() => rm(folder, { recursive: true }));
  const { sidecar, server } = await scene(t, { answer: answers.gone, listen: { path: join(folder, 'api.sock') } });
  assert.match(sidecar.address, /^unix:\//);
  const client = await connect(server.port, { mute: true });
  assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
});

const useless = {
  notWatched: 'not_watched',
  ambiguous: 'ambiguous',
  starting: 'not_ready',
  broken: 'error',
  html: 'not_understood',
  otherJson: 'not_understood',
  endless: 'not_understood',
  brokenOff: 'not_there',
};
for (const [name, reason] of Object.entries(useless)) {
  test(`a plain window decides where the answer is of no use: ${name}`, async (t) => {
    const { sidecar, server, told } = await scene(t, { answer: answers[name] });
    const client = await connect(server.port, { mute: true });
    assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
    await until('the kill', () => told.kills.length > 0);
    assert.equal(told.kills[0].by, 'window');
    assert.equal(told.kills[0].connection, null);
    assert.ok(told.kills[0].lastPongAgeMs >= WINDOW_MS, `${told.kills[0].lastPongAgeMs}`);
    assert.deepEqual(told.fallbacks.map((fallback) => fallback.reason), [reason]);
    assert.ok(sidecar.questions.length > 0);
  });
}

test('a plain window decides where the answer is late', async (t) => {
  const { server, told } = await scene(t, { answer: answers.never, options: { timeoutMs: 50 } });
  const client = await connect(server.port, { mute: true });
  assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
  assert.deepEqual(told.fallbacks.map(({ reason }) => reason), ['late']);
});

test('a plain window decides where nobody listens, and spares those that answer', async (t) => {
  const { sidecar, server, told } = await scene(t);
  await sidecar.stop();
  const healthy = await connect(server.port);
  const gone = await Promise.all(Array.from({ length: 10 }, () => connect(server.port, { mute: true })));
  for (const client of gone) assert.deepEqual(await client.ended, { code: 1011, reason: 'heartbeat timeout' });
  assert.deepEqual(told.fallbacks.map(({ reason }) => reason), ['not_there']);
  assert.equal(healthy.readyState, healthy.OPEN);
});

test('it goes back to the sidecar when that answers again', async (t) => {
  const { sidecar, server, told } = await scene(t, { answer: answers.broken });
  const first = await connect(server.port, { mute: true });
  await first.ended;
  sidecar.answer = answers.alive;
  // The window may close one more of them, before the sidecar is asked whether it is back.
  let second = await connect(server.port, { mute: true });
  await until('the recovery, and a client', async () => {
    if (second.readyState !== second.OPEN) second = await connect(server.port, { mute: true });
    return told.recoveries.length > 0 && second.readyState === second.OPEN;
  });
  const asked = sidecar.questions.length;
  await until('ten more questions', () => sidecar.questions.length >= asked + 10);
  assert.equal(second.readyState, second.OPEN);
  sidecar.answer = answers.gone;
  assert.deepEqual(await second.ended, { code: 1011, reason: 'heartbeat timeout' });
  const [last, ...windows] = told.kills.map(({ by }) => by).reverse();
  assert.equal(last, 'verdict');
  assert.ok(windows.length > 0 && windows.every((by) => by === 'window'), windows.join());
  assert.equal(told.fallbacks.length, 1);
  assert.equal(told.recoveries.length, 1);
});

test('one connection that is not watched says nothing about the others', async (t) => {
  const { sidecar, server, told } = await scene(t);
  const stranger = await connect(server.port, { mute: true });
  sidecar.answer = (response, { peer }) => {
    if (peer.endsWith(`:${stranger.localPort}`)) answers.notWatched(response);
    else answers.alive(response);
  };
  const known = await connect(server.port, { mute: true });
  await stranger.ended;
  const asked = sidecar.questions.length;
  await until('ten more questions', () => sidecar.questions.length >= asked + 10);
  assert.equal(known.readyState, known.OPEN);
  assert.deepEqual(told.fallbacks.map(({ reason }) => reason), ['not_watched']);
  assert.deepEqual(told.kills.map(({ by }) => by), ['window']);
});

test('while the sidecar is away, one question a tick is enough to see it come back', async (t) => {
  const { sidecar, server } = await scene(t, { answer: answers.broken, options: { intervalMs: 400 } });
  await Promise.all(Array.from({ length: 20 }, () => connect(server.port, { mute: true })));
  await until('the end of all', () => server.all.size === 0);
  // The first tick may have asked about a few at once; the others ask once each.
  assert.ok(sidecar.questions.length <= 8, `${sidecar.questions.length} questions`);
});

test('time in which this process stood still is not the peers’', async (t) => {
  const { sidecar, server, told } = await scene(t);
  await sidecar.stop();
  const client = await connect(server.port);
  await until('a Ping', () => client.pings > 0);
  const stillUntil = performance.now() + 5 * WINDOW_MS;
  while (performance.now() < stillUntil);
  const pings = client.pings;
  await until('more Pings', () => client.pings >= pings + 5);
  assert.deepEqual(told.kills, []);
});

test('a socket that this host does not read is not blamed', async (t) => {
  const { sidecar, server, told } = await scene(t);
  await sidecar.stop();
  const client = await connect(server.port);
  const [socket] = server.all;
  socket.pause();
  await until('Pings for longer than the window', () => client.pings >= 10);
  assert.deepEqual(told.kills, []);
});

test('a Ping that the kernel has not taken is not followed by more of them', async (t) => {
  const { sidecar, server } = await scene(t, { answer: answers.alive });
  const client = await connect(server.port);
  const [socket] = server.all;
  client.pause();
  // More than both socket buffers hold.
  socket.send(Buffer.alloc(32 * 1024 * 1024));
  await until('a few questions', () => sidecar.questions.length >= 3);
  const waiting = socket.bufferedAmount;
  await until('ten more', () => sidecar.questions.length >= 13);
  assert.ok(waiting > 0);
  assert.ok(socket.bufferedAmount <= waiting, 'no Ping was queued behind the one that waits');
});

test('two servers and their sockets do not mix', async (t) => {
  const one = await scene(t, { answer: answers.gone });
  const other = await scene(t, { answer: answers.alive });
  const killed = await connect(one.server.port, { mute: true });
  const kept = await connect(other.server.port, { mute: true });
  assert.equal((await killed.ended).code, 1011);
  await until('questions', () => other.sidecar.questions.length >= 5);
  assert.equal(kept.readyState, kept.OPEN);
});

test('what a handler throws is an uncaught error and stops no heartbeat', async (t) => {
  const caught = [];
  // node:test has a listener of its own, which would fail the test.
  const others = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => caught.push(error.message));
  t.after(() => {
    process.removeAllListeners('uncaughtException');
    for (const other of others) process.on('uncaughtException', other);
  });
  const onVerdict = () => {
    throw new Error('from a handler');
  };
  const { sidecar, server } = await scene(t, { answer: answers.alive, options: { onVerdict } });
  await connect(server.port, { mute: true });
  await until('five questions', () => sidecar.questions.length >= 5);
  await until('the errors', () => caught.length >= 3);
  assert.equal(caught[0], 'from a handler');
});

test('a wrong option is refused by its name', async (t) => {
  const server = await startServer();
  t.after(() => server.stop());
  const wrong = {
    intervalMs: 0,
    missed: 1.5,
    sidecar: 'https://127.0.0.1:9465',
    timeoutMs: '500',
    maxInFlight: 0,
    closeTimeoutMs: Number.NaN,
    onKill: 'log',
    interval: 2000,
  };
  for (const [name, value] of Object.entries(wrong)) {
    assert.throws(() => startHeartbeat(server.sockets, { [name]: value }), (error) => {
      return error instanceof TypeError && error.message.includes(name);
    });
  }
  assert.equal(server.sockets.listenerCount('connection'), 1);
});
