/** What is used of a `WebSocket` of the package `ws`. */
export interface HeartbeatSocket {
  readonly readyState: number;
  readonly bufferedAmount: number;
  close(code?: number, reason?: string): void;
  terminate(): void;
}

/** What is used of a `WebSocketServer` of the package `ws`, version 8. */
export interface HeartbeatServer<Socket extends HeartbeatSocket = HeartbeatSocket> {
  /** Missing with `clientTracking: false`; then `connection` must be emitted for every socket. */
  readonly clients?: Set<Socket>;
  on(event: 'connection', listener: (socket: Socket) => void): unknown;
  off(event: 'connection', listener: (socket: Socket) => void): unknown;
}

/** What the evidence adds up to; the sidecar may know more of them one day. */
export type Verdict =
  | 'alive'
  | 'congested'
  | 'stalled'
  | 'silent'
  | 'unreachable'
  | 'closed'
  | 'unknown'
  | (string & {});

/** A Close frame to send (RFC 6455 section 5.5.1). */
export interface CloseFrame {
  /** Status code (RFC 6455 section 7.4). */
  code: number;
  /** Reason, at most 123 bytes. */
  reason: string;
}

/**
 * What the sidecar knows of a connection (`GET /v1/verdict`). Ages are in milliseconds; what is not known is `null`. The
 * sidecar's OpenAPI document has every member; these are those that a watchdog looks at.
 */
export interface Connection {
  /** `ADDRESS:PORT` of the peer, an IPv6 address in brackets. */
  peer: string;
  /** `ADDRESS:PORT` of this side. */
  local: string;
  verdict: Verdict;
  /** The rung of evidence that the verdict stands on. */
  rung: string;
  /** Whether the policy justifies a kill. */
  kill_justified: boolean;
  /** What to close with, where a kill is justified. */
  suggested_close: CloseFrame | null;
  [member: string]: unknown;
}

/** Which socket it is about. */
export interface About<Socket extends HeartbeatSocket = HeartbeatSocket> {
  socket: Socket;
  /** `ADDRESS:PORT` of the peer; `null` where there is no TCP socket below. */
  peer: string | null;
  /** `ADDRESS:PORT` of this side. */
  local: string | null;
}

/** A socket that is being closed. */
export interface Kill<Socket extends HeartbeatSocket = HeartbeatSocket> extends About<Socket>, CloseFrame {
  /** The sidecar's verdict, or the plain window where it cannot be asked. */
  by: 'verdict' | 'window';
  /** What the sidecar said; `null` for `window`. */
  connection: Connection | null;
  /** Ticks since the last Pong. */
  missed: number;
  /** Milliseconds since the last Pong, or since the socket was opened. */
  lastPongAgeMs: number;
  /** Bytes that wait in this process. */
  bufferedBytes: number;
}

/** The sidecar said something about a socket whose Pong is late. */
export interface Judged<Socket extends HeartbeatSocket = HeartbeatSocket> extends About<Socket> {
  connection: Connection;
}

/** Why the plain window decides. */
export type FallbackReason =
  /** Nobody listens there, or the connection broke. */
  | 'not_there'
  /** No answer within `timeoutMs`. */
  | 'late'
  /** Status 503: the sidecar starts. */
  | 'not_ready'
  /** Status 404: the sidecar does not watch this connection. Others may be known to it. */
  | 'not_watched'
  /** Status 409: the sidecar watches several connections with these ends. */
  | 'ambiguous'
  /** Another status. */
  | 'error'
  /** Not what the sidecar says. */
  | 'not_understood';

/** The sidecar cannot be asked, or not about this socket. */
export interface Fallback<Socket extends HeartbeatSocket = HeartbeatSocket> extends About<Socket> {
  reason: FallbackReason;
  /** The same for people. */
  message: string;
}

/** Options of `startHeartbeat`. Handlers are called after the fact, on a microtask. */
export interface HeartbeatOptions<Socket extends HeartbeatSocket = HeartbeatSocket> {
  /** Milliseconds from one Ping to the next. Default 2000. */
  intervalMs?: number;
  /** Pings without a Pong from which on a socket is asked about, once an interval. Default 2. */
  missed?: number;
  /** Where the sidecar's API is: `http://ADDRESS:PORT`, or `unix:/PATH`. Default `http://127.0.0.1:9465`. */
  sidecar?: string;
  /** Milliseconds that an answer may take. Default 500. */
  timeoutMs?: number;
  /** Questions under way at most. Default 4; each socket has at most one. */
  maxInFlight?: number;
  /** Milliseconds that the closing handshake may take before the socket is destroyed. Default 5000. */
  closeTimeoutMs?: number;
  /** Tell the sidecar of Pings and Pongs, which it cannot see where TLS ends in this process. Default `false`. */
  report?: boolean;
  /** A socket is being closed. */
  onKill?: (kill: Kill<Socket>) => void;
  /** The sidecar answered. */
  onVerdict?: (judged: Judged<Socket>) => void;
  /** The plain window decides from now on; told once until the sidecar answers again. */
  onFallback?: (fallback: Fallback<Socket>) => void;
  /** The sidecar answers again. */
  onRecover?: (about: About<Socket>) => void;
}

/** A running heartbeat. */
export interface HeartbeatHandle {
  /** Ends it: no more Pings, no more kills. Sockets stay open. */
  stop(): void;
  /** Sockets that it watches. */
  readonly watched: number;
  /** Heartbeats that were to be reported and were not. */
  readonly droppedHeartbeats: number;
}

/**
 * Pings every socket of a `ws` server and asks ackbeat about those whose Pong is late. Closes those that it calls gone, with
 * `1011 heartbeat timeout`, and destroys what does not answer that. Where the sidecar cannot be asked, a socket is closed
 * after three intervals without a Pong.
 *
 * @throws {TypeError} An option is wrong; the message names it.
 */
export function startHeartbeat<Socket extends HeartbeatSocket>(
  server: HeartbeatServer<Socket>,
  options?: HeartbeatOptions<Socket>,
): HeartbeatHandle;
