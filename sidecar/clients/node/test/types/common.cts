// The same for a program that is no module.
import ws = require('ws');
import ackbeat = require('@ackbeat/heartbeat');

const heartbeat: ackbeat.HeartbeatHandle = ackbeat.startHeartbeat(new ws.WebSocketServer({ noServer: true }), {
  report: true,
  onRecover: ({ socket, peer }) => console.warn(socket.readyState, peer?.length),
});
heartbeat.stop();
