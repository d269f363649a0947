import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { createServer } from 'node:https';
import { test } from 'node:test';

import { startHeartbeat } from '../index.mjs';
import { answers, startSidecar } from './fake-sidecar.mjs';
import { DEADLINE_MS, INTERVAL_MS, connect, startServer, until } from './world.mjs';

const { endpoint } = createRequire(import.meta.url)('../lib/address.cjs');

test('addresses are written as the sidecar writes them', () => {
  assert.equal(endpoint('10.0.0.1', 443), '10.0.0.1:443');
  assert.equal(endpoint('::ffff:10.0.0.1', 443), '10.0.0.1:443');
  assert.equal(endpoint('::FFFF:10.0.0.1', 443), '10.0.0.1:443');
  assert.equal(endpoint('::1', 443), '[::1]:443');
  assert.equal(endpoint('fd87:1::2', 65535), '[fd87:1::2]:65535');
  assert.equal(endpoint('fe80::1%eth0', 443), '[fe80::1]:443');
  assert.equal(endpoint('::ffff:0:1', 443), '[::ffff:0:1]:443');
  assert.equal(endpoint(undefined, 443), null);
  assert.equal(endpoint('10.0.0.1', undefined), null);
});

/** What the sidecar is asked about a client of a server that listens on `host`. */
const asked = async (t, { host, server, client = {} }) => {
  const sidecar = await startSidecar({ answer: answers.alive });
  const scene = await startServer({ host, server });
  const options = { intervalMs: INTERVAL_MS, sidecar: sidecar.address, timeoutMs: DEADLINE_MS };
  const heartbeat = startHeartbeat(scene.sockets, options);
  t.after(async () => {
    heartbeat.stop();
    await scene.stop();
    await sidecar.stop();
  });
  const peer = await connect(scene.port, { mute: true, ...client });
  const question = await until('a question', () => sidecar.questions[0]);
  return { question, peerPort: peer.localPort, port: scene.port };
};

test('a client over IPv6', async (t) => {
  const { question, peerPort, port } = await asked(t, { host: '::1', client: { host: '[::1]' } });
  assert.deepEqual(question, { peer: `[::1]:${peerPort}`, local: `[::1]:${port}` });
});

test('a client over IPv4 of a server that listens on both', async (t) => {
  const { question, peerPort, port } = await asked(t, { host: '::' });
  assert.deepEqual(question, { peer: `127.0.0.1:${peerPort}`, local: `127.0.0.1:${port}` });
});

test('a client behind TLS that ends in this process', async (t) => {
  // A shared key needs no certificate (RFC 4279).
  const key = Buffer.alloc(32, 7);
  const tls = { ciphers: 'PSK', maxVersion: 'TLSv1.2' };
  const server = createServer({ ...tls, pskCallback: () => key });
  const client = {
    ...tls,
    scheme: 'wss',
    pskCallback: () => ({ psk: key, identity: 'client' }),
    checkServerIdentity: () => undefined,
  };
  const { question, peerPort, port } = await asked(t, { server, client });
  assert.deepEqual(question, { peer: `127.0.0.1:${peerPort}`, local: `127.0.0.1:${port}` });
});
