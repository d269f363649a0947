// A sidecar for the tests: a real HTTP server that answers as the API does, or in one of the ways in which it may not.
import { createServer } from 'node:http';

/** An answer of `GET /v1/verdict`, as the sidecar writes it. */
export const connection = (more = {}) => ({
  connection: 4711,
  peer: '127.0.0.1:1',
  local: '127.0.0.1:2',
  role: 'server',
  path: '/',
  is_websocket: true,
  preexisting: false,
  age_ms: 12_000,
  verdict: 'congested',
  rung: 'drain',
  scope: 'next_hop',
  kill_justified: false,
  suggested_close: null,
  heartbeat: {},
  evidence: {},
  tcp: {},
  ...more,
});

/** What it says of a peer that is gone. */
export const gone = (more = {}) =>
  connection({
    verdict: 'unreachable',
    rung: 'hop',
    kill_justified: true,
    suggested_close: { code: 1011, reason: 'heartbeat timeout' },
    ...more,
  });

const problem = (status, title) => ({ type: 'about:blank', title, status, detail: 'give `local`, or wait' });

/** How it may answer a question. */
export const answers = {
  alive: (response) => json(response, 200, connection()),
  gone: (response) => json(response, 200, gone()),
  notWatched: (response) => json(response, 404, problem(404, 'Not Found')),
  ambiguous: (response) => json(response, 409, problem(409, 'Conflict')),
  starting: (response) => json(response, 503, problem(503, 'Service Unavailable')),
  broken: (response) => json(response, 500, { oops: true }),
  html: (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<h1>It works!</h1>'),
  otherJson: (response) => json(response, 200, { kill_justified: 'yes' }),
  endless: (response) => {
    response.writeHead(200);
    response.write(Buffer.alloc(256 * 1024, 'x'));
  },
  brokenOff: (response) => {
    response.writeHead(200, { 'content-length': '4096' });
    response.write('{', () => response.destroy());
  },
  never: () => {},
};

const json = (response, status, body) => {
  const type = status < 400 ? 'application/json' : 'application/problem+json';
  response.writeHead(status, { 'content-type': type }).end(JSON.stringify(body));
};

const read = async (request) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
};

/**
 * Starts one. `answer` may be changed while it runs; `questions` has the parameters of every question, `reports` every
 * heartbeat that it was told of, `mostAtOnce` how many exchanges were open at the same time at most.
 */
export const startSidecar = async ({ answer = answers.alive, listen = { host: '127.0.0.1', port: 0 } } = {}) => {
  const sidecar = { answer, questions: [], reports: [], open: 0, mostAtOnce: 0, connections: 0 };
  const server = createServer(async (request, response) => {
    sidecar.open += 1;
    sidecar.mostAtOnce = Math.max(sidecar.mostAtOnce, sidecar.open);
    response.on('close', () => (sidecar.open -= 1));
    const url = new URL(request.url, 'http://sidecar');
    const body = await read(request);
    if (request.method === 'POST' && url.pathname === '/v1/heartbeats') {
      const { heartbeats } = JSON.parse(body);
      sidecar.reports.push(...heartbeats);
      json(response, 202, { accepted: heartbeats.length, unmatched: 0, redundant: 0 });
    } else if (request.method === 'GET' && url.pathname === '/v1/verdict') {
      const question = { peer: url.searchParams.get('peer'), local: url.searchParams.get('local') };
      sidecar.questions.push(question);
      sidecar.answer(response, question);
    } else {
      json(response, 404, problem(404, 'Not Found'));
    }
  });
  server.on('connection', () => (sidecar.connections += 1));
  await new Promise((resolve) => server.listen(listen, resolve));
  const address = server.address();
  sidecar.address = typeof address === 'string' ? `unix:${address}` : `http://127.0.0.1:${address.port}`;
  sidecar.port = address.port;
  sidecar.stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return sidecar;
};
