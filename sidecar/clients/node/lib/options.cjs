'use strict';

const positive = (name, value) => {
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) {
    throw new TypeError(`${name} must be a number above 0, not ${String(value)}`);
  }
  return value;
};

const count = (name, value) => {
  if (!Number.isInteger(value) || value < 1) throw new TypeError(`${name} must be a whole number from 1 on`);
  return value;
};

const handler = (name, value) => {
  if (value !== undefined && typeof value !== 'function') throw new TypeError(`${name} must be a function`);
  return value;
};

/** The options with their defaults; a wrong one is a TypeError that names it. */
const withDefaults = (given = {}) => {
  const known = {
    intervalMs: positive('intervalMs', given.intervalMs ?? 2000),
    missed: count('missed', given.missed ?? 2),
    sidecar: given.sidecar ?? 'http://127.0.0.1:9465',
    timeoutMs: positive('timeoutMs', given.timeoutMs ?? 500),
    maxInFlight: count('maxInFlight', given.maxInFlight ?? 4),
    closeTimeoutMs: positive('closeTimeoutMs', given.closeTimeoutMs ?? 5000),
    report: given.report ?? false,
    onKill: handler('onKill', given.onKill),
    onVerdict: handler('onVerdict', given.onVerdict),
    onFallback: handler('onFallback', given.onFallback),
    onRecover: handler('onRecover', given.onRecover),
  };
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(known, name)) throw new TypeError(`there is no option ${name}`);
  }
  return known;
};

module.exports = { withDefaults };
