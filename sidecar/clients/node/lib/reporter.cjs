'use strict';

// Heartbeats of one report at most, and the age of one at most, as the API has it.
const HEARTBEATS_MAX = 256;
const AGE_MAX_MS = 60_000;
// Heartbeats that wait at most. More than this means that the sidecar has not taken any for a while.
const WAITING_MAX = 16 * HEARTBEATS_MAX;
// So long a heartbeat may wait for others to share a report with.
const GATHER_MS = 100;

/** Tells the sidecar of Pings and Pongs that it cannot see, because TLS ends in this process. */
class Reporter {
  constructor(sidecar, now) {
    this.sidecar = sidecar;
    this.now = now;
    this.waiting = [];
    this.dropped = 0;
    this.timer = null;
    this.sending = false;
  }

  /** A Ping that the kernel has taken, or a Pong that came. */
  add(kind, { peer, local }, id) {
    if (peer === null) return;
    if (this.waiting.length >= WAITING_MAX) {
      this.waiting.shift();
      this.dropped += 1;
    }
    this.waiting.push({ peer, local, kind, at: this.now(), id });
    this.#schedule();
  }

  /** Sends nothing more. */
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.dropped += this.waiting.length;
    this.waiting = [];
  }

  #schedule() {
    if (this.timer !== null || this.sending || this.waiting.length === 0) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      void this.#send();
    }, GATHER_MS);
    this.timer.unref();
  }

  async #send() {
    this.sending = true;
    const now = this.now();
    const batch = this.waiting.splice(0, HEARTBEATS_MAX);
    const young = batch.filter(({ at }) => now - at <= AGE_MAX_MS);
    this.dropped += batch.length - young.length;
    try {
      if (young.length > 0) {
        await this.sidecar.report(
          young.map(({ at, ...heartbeat }) => ({ ...heartbeat, age_ms: Math.max(0, Math.round(now - at)) })),
        );
      }
    } catch {
      // An old report is of little use: the next Ping tells the same. What is lost is counted.
      this.dropped += young.length;
    }
    this.sending = false;
    this.#schedule();
  }
}

module.exports = { Reporter };
