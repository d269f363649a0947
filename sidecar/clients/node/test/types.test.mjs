import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const tools = join(process.cwd(), 'node_modules');
const here = fileURLToPath(new URL('..', import.meta.url));

test('programs with types compile against the installed package, as a module and as none', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'ackbeat-types-'));
  t.after(() => rm(folder, { recursive: true }));
  const modules = join(folder, 'node_modules');
  await mkdir(join(modules, '@ackbeat'), { recursive: true });
  await symlink(here, join(modules, '@ackbeat', 'heartbeat'));
  for (const name of ['ws', '@types']) await symlink(join(tools, name), join(modules, name));
  await cp(join(here, 'test', 'types'), folder, { recursive: true });
  const options = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'node16', '--skipLibCheck', 'false'];
  const compiler = join(tools, 'typescript', 'bin', 'tsc');
  const { stdout, status } = spawnSync(process.execPath, [compiler, ...options, 'module.mts', 'common.cts'], {
    cwd: folder,
    encoding: 'utf8',
  });
  assert.equal(stdout, '');
  assert.equal(status, 0);
});
