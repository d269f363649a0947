// Compiled, not run: what a program with types writes, as a module.
import { WebSocketServer, type WebSocket } from 'ws';
import { startHeartbeat, type HeartbeatHandle, type HeartbeatOptions, type Kill } from '@ackbeat/heartbeat';

const options: HeartbeatOptions<WebSocket> = {
  intervalMs: 2000,
  sidecar: 'unix:/run/ackbeat/api.sock',
  onKill: ({ socket, by, code, reason, connection }: Kill<WebSocket>) => {
    const extensions: string = socket.extensions;
    const verdict: string | undefined = connection?.verdict;
    console.warn(by === 'window', code + 1, reason.length, extensions, verdict);
  },
};
const heartbeat: HeartbeatHandle = startHeartbeat(new WebSocketServer({ noServer: true }), options);
const watched: number = heartbeat.watched;
heartbeat.stop();

// The socket's type is that of the server.
startHeartbeat(new WebSocketServer({ noServer: true }), {
  onVerdict: ({ socket, connection }) => socket.send(String(connection.kill_justified && watched > 0)),
  onFallback: ({ reason }) => {
    if (reason === 'late') return;
    // @ts-expect-error no such reason
    if (reason === 'bored') return;
  },
});
// @ts-expect-error no such option
startHeartbeat(new WebSocketServer({ noServer: true }), { interval: 2000 });
// @ts-expect-error not a number
startHeartbeat(new WebSocketServer({ noServer: true }), { intervalMs: '2000' });
// @ts-expect-error it cannot be written
heartbeat.watched = 1;
