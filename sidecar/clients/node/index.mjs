import heartbeat from './index.cjs';

export const startHeartbeat = heartbeat.startHeartbeat;
