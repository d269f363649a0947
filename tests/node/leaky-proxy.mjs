// A proxy with the two faults of report D.
//
//   node leaky-proxy.mjs LISTEN_ADDRESS RELAY_ADDRESS RELAY_PORT
//
// It passes on what comes, both ways, and prints `listening PORT`.
//
// 1. A client that leaves emits 'close', not 'error': nobody aborts the upstream connection.
// 2. An upstream connection that ends is told to the client, and never closed.
import net from "node:net";

const [listenAddress, relayAddress, relayPort] = process.argv.slice(2);

const server = net.createServer((client) => {
  const upstream = net.connect({ host: relayAddress, port: Number(relayPort), allowHalfOpen: true });
  client.on("data", (bytes) => upstream.write(bytes));
  upstream.on("data", (bytes) => client.write(bytes));
  client.on("error", () => upstream.destroy());
  upstream.on("end", () => client.end());
  upstream.on("error", () => client.destroy());
});

server.listen(0, listenAddress, () => console.log(`listening ${server.address().port}`));
