'use strict';

const http = require('node:http');

// An answer of /v1/verdict has about 1.5 kB. More than this is from somebody else.
const ANSWER_MAX_BYTES = 64 * 1024;

/** Why a question has no usable answer; `reason` is a word for programs, the message is for people. */
class NoAnswer extends Error {
  constructor(reason, message) {
    super(message);
    this.name = 'NoAnswer';
    this.reason = reason;
  }
}

const REASONS = { 404: 'not_watched', 409: 'ambiguous', 503: 'not_ready' };

/** Where the sidecar listens: `http://127.0.0.1:9465`, or `unix:/run/ackbeat/api.sock`. */
const target = (sidecar) => {
  if (typeof sidecar === 'string' && sidecar.startsWith('unix:')) {
    const socketPath = sidecar.slice('unix:'.length);
    if (socketPath.startsWith('/')) return { socketPath, host: 'localhost' };
  } else if (typeof sidecar === 'string' && URL.canParse(sidecar)) {
    const { protocol, hostname, port } = new URL(sidecar);
    // Node wants an IPv6 address without its brackets.
    const host = hostname.replace(/^\[|\]$/g, '');
    if (protocol === 'http:') return { host, port: port === '' ? 80 : Number(port) };
  }
  throw new TypeError(`sidecar must be an http:// URL or unix: and an absolute path, not ${String(sidecar)}`);
};

/** The sidecar's API, over a few connections that are kept. */
class Sidecar {
  constructor({ sidecar, timeoutMs, maxInFlight }) {
    this.target = target(sidecar);
    this.timeoutMs = timeoutMs;
    this.agent = new http.Agent({ keepAlive: true, maxSockets: maxInFlight, maxFreeSockets: maxInFlight });
  }

  /**
   * What the sidecar knows of a connection (`GET /v1/verdict`). Fails with NoAnswer where the answer is none, late, an
   * error, or not what it should be.
   */
  async verdict({ peer, local }) {
    const query = new URLSearchParams(local === null ? { peer } : { peer, local });
    const answer = await this.#exchange('GET', `/v1/verdict?${query}`);
    if (typeof answer?.kill_justified !== 'boolean') {
      throw new NoAnswer('not_understood', 'the answer has no kill_justified: is this the sidecar?');
    }
    return answer;
  }

  /** Tells the sidecar of heartbeats (`POST /v1/heartbeats`). Fails as `verdict` does. */
  report(heartbeats) {
    return this.#exchange('POST', '/v1/heartbeats', JSON.stringify({ heartbeats }));
  }

  /** Closes the connections that are kept. */
  close() {
    this.agent.destroy();
  }

  async #exchange(method, path, body) {
    const until = performance.now() + this.timeoutMs;
    try {
      return await this.#request(method, path, body, this.timeoutMs);
    } catch (error) {
      // The sidecar may close a kept connection just when it is used again, and is there all the same.
      if (error.onKeptConnection !== true) throw error;
      return this.#request(method, path, body, Math.max(until - performance.now(), 1));
    }
  }

  #request(method, path, body, timeoutMs) {
    return new Promise((resolve, reject) => {
      const headers = { accept: 'application/json' };
      if (body !== undefined) {
        headers['content-type'] = 'application/json';
        headers['content-length'] = Buffer.byteLength(body);
      }
      const request = http.request({ ...this.target, agent: this.agent, method, path, headers });
      const finish = (settle, value) => {
        clearTimeout(timer);
        settle(value);
      };
      const refuse = (reason, message) => finish(reject, new NoAnswer(reason, message));
      // Gives up an exchange that is not over, and its connection with it.
      const fail = (reason, message) => {
        refuse(reason, message);
        request.destroy();
      };
      // For the whole exchange: an answer that trickles in is late, too.
      const timer = setTimeout(() => fail('late', `no answer within ${this.timeoutMs} ms`), timeoutMs);
      // A question must not keep the process alive.
      timer.unref();
      request.on('socket', (socket) => socket.unref());
      request.on('error', (cause) => {
        const error = new NoAnswer('not_there', `the sidecar cannot be asked: ${cause.message}`);
        error.onKeptConnection = request.reusedSocket && cause.code === 'ECONNRESET';
        finish(reject, error);
      });
      request.on('response', (response) => {
        const chunks = [];
        let bytes = 0;
        response.on('data', (chunk) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > ANSWER_MAX_BYTES) fail('not_understood', 'the answer is too long to be the sidecar\'s');
        });
        // The connection ended in the middle.
        response.on('error', (cause) => fail('not_there', `the answer broke off: ${cause.message}`));
        response.on('end', () => {
          const status = response.statusCode;
          const text = Buffer.concat(chunks).toString();
          if (status < 200 || status > 299) {
            refuse(REASONS[status] ?? 'error', `the sidecar answered with the status ${status}`);
            return;
          }
          try {
            finish(resolve, JSON.parse(text));
          } catch {
            refuse('not_understood', 'the answer is no JSON: is this the sidecar?');
          }
        });
      });
      request.end(body);
    });
  }
}

module.exports = { NoAnswer, Sidecar };
