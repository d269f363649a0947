// A program with a heartbeat that it never stops: it must end by itself once its server and its sockets are closed. The
// sidecar is a process of its own and never answers.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

import { startHeartbeat } from '../index.mjs';
import { connect, startServer } from './world.mjs';

const silent = "const s = require('net').createServer(() => {}).listen(0, '127.0.0.1', () => console.log(s.address().port));";
const sidecar = spawn(process.execPath, ['-e', silent], { stdio: ['ignore', 'pipe', 'inherit'] });
const [port] = await once(sidecar.stdout, 'data');

const server = await startServer();
// An hour: a timer or a question that holds the process would hold it for longer than anybody waits.
startHeartbeat(server.sockets, {
  intervalMs: 50,
  timeoutMs: 3_600_000,
  sidecar: `http://127.0.0.1:${port.toString().trim()}`,
  report: true,
});
const client = await connect(server.port, { mute: true });
while (client.pings < 5) await once(client, 'ping');
client.terminate();
await server.stop();
process.on('exit', () => sidecar.kill());
sidecar.stdout.destroy();
sidecar.unref();
