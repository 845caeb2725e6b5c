// Loaded before a server that listens for HTTP on all interfaces. It makes the
// server listen on loopback only, says on which port it does, and ends it with
// the process that started it, whose end closes the standard input.
import net from "node:net";

const listen = net.Server.prototype.listen;

net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.error(`loopback port ${this.address().port}`));
  return listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest);
};

process.stdin.on("close", () => process.exit(0)).resume();
