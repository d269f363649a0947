import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import { answers, startSidecar } from './fake-sidecar.mjs';
import { connect, startServer } from './world.mjs';

/** The first block of code after the comment that says so. */
const recipe = async () => {
  const readme = await readFile(new URL('../README.md', import.meta.url), 'utf8');
  const [, after] = readme.split('<!-- This block is run as it stands by a test. -->\n```js\n');
  return after.split('```')[0];
};

test('the recipe of the README, as it stands there', async (t) => {
  const text = await recipe();
  const lines = text.trimEnd().split('\n').length;
  assert.ok(lines <= 10, `it has ${lines} lines`);
  // In this scope there is nothing but what every program has.
  const isGone = new Function(`${text}\nreturn isGone;`)();
  const sidecar = await startSidecar();
  const server = await startServer();
  process.env.ACKBEAT_API = sidecar.address;
  t.after(async () => {
    delete process.env.ACKBEAT_API;
    await server.stop();
  });
  const client = await connect(server.port);
  const [socket] = server.all;
  const ask = (answer) => {
    sidecar.answer = answer;
    return isGone(socket._socket);
  };
  assert.equal(await ask(answers.alive), false);
  assert.deepEqual(sidecar.questions[0], { peer: `127.0.0.1:${client.localPort}`, local: `127.0.0.1:${server.port}` });
  assert.equal(await ask(answers.gone), true);
  const both = { remoteAddress: '::ffff:10.0.0.1', remotePort: 1, localAddress: '::1', localPort: 2 };
  assert.equal(await isGone(both), true);
  assert.deepEqual(sidecar.questions[2], { peer: '10.0.0.1:1', local: '[::1]:2' });
  for (const useless of ['notWatched', 'ambiguous', 'starting', 'broken', 'html', 'never']) {
    assert.equal(await ask(answers[useless]), null, useless);
  }
  await sidecar.stop();
  assert.equal(await isGone(socket._socket), null);
});
