'use strict';

// An IPv4-mapped address is IPv4 on the wire (RFC 4291 section 2.5.5.2), and that is how the sidecar names it.
const MAPPED = /^::ffff:(\d{1,3}(?:\.\d{1,3}){3})$/i;

/** `ADDRESS:PORT` as the sidecar writes it, an IPv6 address in brackets; `null` where either is not known. */
const endpoint = (address, port) => {
  if (typeof address !== 'string' || address === '' || !Number.isInteger(port)) return null;
  const mapped = MAPPED.exec(address);
  if (mapped !== null) return `${mapped[1]}:${port}`;
  if (!address.includes(':')) return `${address}:${port}`;
  // The zone of a link-local address (RFC 4007 section 11) is this machine's own word, and no part of the address.
  return `[${address.split('%')[0]}]:${port}`;
};

/**
 * Both ends of a `ws` socket. `_socket` is the net.Socket, or the tls.TLSSocket, which hands the addresses of the socket
 * below it through; ws has no public name for it. Read early: a socket that is destroyed has forgotten them.
 */
const endpoints = (socket) => {
  const transport = socket._socket ?? {};
  return {
    peer: endpoint(transport.remoteAddress, transport.remotePort),
    local: endpoint(transport.localAddress, transport.localPort),
  };
};

module.exports = { endpoint, endpoints };
