'use strict';

const { endpoints } = require('./address.cjs');
const { withDefaults } = require('./options.cjs');
const { Reporter } = require('./reporter.cjs');
const { Sidecar } = require('./sidecar.cjs');

// ws.OPEN (WHATWG WebSockets section 3.1).
const OPEN = 1;
// What to close with where the sidecar suggests nothing (RFC 6455 section 7.4.1).
const CODE = 1011;
const REASON = 'heartbeat timeout';
const REASON_MAX_BYTES = 123;
// Intervals without a Pong after which a socket is closed where the sidecar cannot be asked.
const WINDOW_INTERVALS = 3;

const now = () => performance.now();

/** Whether a host may send this status code (RFC 6455 section 7.4). */
const isSendable = (code) =>
  (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999);

/** The Close frame to send: the sidecar's suggestion, if it is one. */
const closeFrame = (suggested) => {
  const { code, reason } = suggested ?? {};
  const isFrame =
    Number.isInteger(code) && isSendable(code) && typeof reason === 'string' &&
    Buffer.byteLength(reason) <= REASON_MAX_BYTES;
  return isFrame ? { code, reason } : { code: CODE, reason: REASON };
};

/** One socket's heartbeat. */
class Watched {
  constructor(socket) {
    this.socket = socket;
    this.ends = endpoints(socket);
    // The last Pong, or the beginning: what the window without the sidecar is counted from.
    this.heardAt = now();
    // Ticks since the last Pong, as a loop that counts would have them.
    this.unanswered = 0;
    // A Ping that the kernel has not taken: another one behind it would tell nothing more.
    this.pingWaits = false;
    this.asked = false;
    // The sidecar said that it does not watch this one.
    this.unknown = false;
  }

  heard() {
    this.heardAt = now();
    this.unanswered = 0;
  }

  about() {
    const { peer, local } = this.ends;
    return { socket: this.socket, peer, local };
  }
}

class Heartbeat {
  constructor(server, options) {
    this.server = server;
    this.options = options;
    this.sidecar = new Sidecar(options);
    this.reporter = options.report ? new Reporter(this.sidecar, now) : null;
    this.watched = new Map();
    // Sockets that are to be asked for, each once, and how many questions are under way.
    this.questions = new Set();
    this.inFlight = 0;
    // The sidecar cannot be asked at all.
    this.outage = false;
    // It was told that the sidecar does not know a connection: once, and not for every one of them.
    this.unknownTold = false;
    this.pings = 0;
    this.tickedAt = now();
    this.onConnection = (socket) => this.watch(socket);
    server.on('connection', this.onConnection);
    this.watchAll();
    this.timer = setInterval(() => this.tick(), options.intervalMs);
    this.timer.unref();
  }

  stop() {
    clearInterval(this.timer);
    this.server.off('connection', this.onConnection);
    for (const { forget } of [...this.watched.values()]) forget();
    this.questions.clear();
    this.reporter?.stop();
    this.sidecar.close();
  }

  watchAll() {
    // A server without `clientTracking` has none; then only `connection` tells.
    for (const socket of this.server.clients ?? []) this.watch(socket);
  }

  watch(socket) {
    if (this.watched.has(socket) || socket.readyState !== OPEN) return;
    const watched = new Watched(socket);
    const onPong = (data) => {
      watched.heard();
      this.reporter?.add('pong', watched.ends, data.toString());
    };
    const forget = () => {
      socket.off('pong', onPong);
      socket.off('close', forget);
      this.watched.delete(socket);
      this.questions.delete(watched);
    };
    watched.forget = forget;
    socket.on('pong', onPong);
    socket.on('close', forget);
    this.watched.set(socket, watched);
  }

  tick() {
    const at = now();
    // Time in which this process itself stood still (a long task, SIGSTOP, a paused machine) is not the peers': their
    // Pongs may lie unread.
    const lateMs = at - this.tickedAt - this.options.intervalMs;
    this.tickedAt = at;
    const stoodStill = lateMs > this.options.intervalMs / 2;
    this.watchAll();
    for (const watched of this.watched.values()) {
      if (watched.socket.readyState !== OPEN) continue;
      // A host that reads nothing cannot blame the peer for it.
      if (stoodStill || watched.socket.isPaused) watched.heardAt = at;
      if (watched.unanswered >= this.options.missed) this.judge(watched, at);
      watched.unanswered += 1;
      this.ping(watched);
    }
    this.ask();
  }

  ping(watched) {
    if (watched.socket.readyState !== OPEN || watched.pingWaits) return;
    watched.pingWaits = true;
    this.pings += 1;
    // Reported heartbeats are matched by what a Pong repeats; seen ones need nothing in them.
    const payload = this.reporter === null ? '' : this.pings.toString(36);
    watched.socket.ping(payload, false, (error) => {
      watched.pingWaits = false;
      if (!error) this.reporter?.add('ping', watched.ends, payload);
    });
  }

  /** A socket whose Pong is late. */
  judge(watched, at) {
    if (watched.ends.peer === null) {
      // Nothing that the sidecar could be asked about: no TCP socket below it.
      this.judgeByWindow(watched, at);
    } else if (this.outage && (this.questions.size > 0 || this.inFlight > 0)) {
      // One question a tick finds out whether the sidecar is back; whoever asks it is judged with the answer.
      this.judgeByWindow(watched, at);
    } else {
      this.question(watched);
    }
  }

  question(watched) {
    if (watched.asked || watched.socket.readyState !== OPEN) return;
    watched.asked = true;
    this.questions.add(watched);
  }

  ask() {
    for (const watched of this.questions) {
      if (this.inFlight >= this.options.maxInFlight) return;
      this.questions.delete(watched);
      this.inFlight += 1;
      void this.askAbout(watched);
    }
  }

  async askAbout(watched) {
    const { heardAt } = watched;
    let answer = null;
    let failure = null;
    try {
      answer = await this.sidecar.verdict(watched.ends);
    } catch (error) {
      failure = error;
    }
    this.inFlight -= 1;
    watched.asked = false;
    if (this.watched.get(watched.socket) === watched) {
      if (failure === null) this.answered(watched, answer, heardAt);
      else this.unusable(watched, failure);
    }
    this.ask();
  }

  answered(watched, answer, heardAt) {
    if (this.outage || watched.unknown) {
      this.outage = false;
      if (watched.unknown) this.unknownTold = false;
      watched.unknown = false;
      this.call('onRecover', watched.about());
    }
    this.call('onVerdict', { ...watched.about(), connection: answer });
    // A Pong that came meanwhile knows better.
    if (answer.kill_justified && watched.heardAt === heardAt) this.kill(watched, 'verdict', answer);
  }

  /** No answer, or none that says anything about this socket. */
  unusable(watched, { reason, message }) {
    const isAnswer = reason === 'not_watched' || reason === 'ambiguous';
    const told = isAnswer ? this.unknownTold : this.outage;
    this.outage = !isAnswer;
    if (isAnswer) {
      this.unknownTold = true;
      watched.unknown = true;
    } else {
      // Those that wait for their question are judged by the next tick.
      for (const waiting of this.questions) waiting.asked = false;
      this.questions.clear();
    }
    if (!told) this.call('onFallback', { ...watched.about(), reason, message });
    this.judgeByWindow(watched, now());
  }

  judgeByWindow(watched, at) {
    const windowMs = WINDOW_INTERVALS * this.options.intervalMs;
    if (at - watched.heardAt >= windowMs) this.kill(watched, 'window', null);
  }

  kill(watched, by, connection) {
    const { socket, unanswered, heardAt } = watched;
    if (socket.readyState !== OPEN) return;
    const frame = closeFrame(connection?.suggested_close);
    const info = {
      ...watched.about(),
      by,
      ...frame,
      connection,
      missed: unanswered,
      lastPongAgeMs: Math.round(now() - heardAt),
      bufferedBytes: socket.bufferedAmount,
    };
    socket.close(frame.code, frame.reason);
    // Behind what a peer that is gone has not acknowledged, the Close frame may never leave the kernel: only this process
    // knows of it. The close goes on, whatever becomes of the report.
    if (!this.outage && info.peer !== null) {
      const { peer, local } = info;
      void this.sidecar.report([{ peer, local, kind: 'close', age_ms: 0, ...frame }]).catch(() => {});
    }
    // A peer that is gone never answers the Close frame. What ends the socket then is this, not minutes of TCP.
    const timer = setTimeout(() => socket.terminate(), this.options.closeTimeoutMs);
    timer.unref();
    socket.once('close', () => clearTimeout(timer));
    this.call('onKill', info);
  }

  /** Calls a handler of the caller's. What it throws is an uncaught error, as of any listener, and stops no heartbeat. */
  call(name, info) {
    const handler = this.options[name];
    if (handler !== undefined) queueMicrotask(() => handler(info));
  }
}

/**
 * Pings every socket of a `ws` server, asks ackbeat about those whose Pong is late, and closes those that it calls gone.
 * See index.d.ts for the options and the handle.
 */
const startHeartbeat = (server, options) => {
  const heartbeat = new Heartbeat(server, withDefaults(options));
  return {
    stop: () => heartbeat.stop(),
    get watched() {
      return heartbeat.watched.size;
    },
    get droppedHeartbeats() {
      return heartbeat.reporter?.dropped ?? 0;
    },
  };
};

module.exports = { startHeartbeat };
