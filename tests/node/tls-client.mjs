// A client over TLS that answers Pings, as ws does by itself.
//
// Usage: node tls-client.mjs HOST:PORT CERTIFICATE; the folder that has node_modules/ws is the working directory.
import { readFileSync } from 'node:fs';

import { load, path } from './events.mjs';

const { WebSocket } = load('ws');

const [address, certificate] = process.argv.slice(2);
new WebSocket(`wss://${address}${path}`, { ca: readFileSync(certificate), perMessageDeflate: false });
