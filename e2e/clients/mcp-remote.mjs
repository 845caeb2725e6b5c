// mcp-remote is a bridge for clients that only speak stdio. Here such a client
// (the first TypeScript SDK) starts it and talks through it.
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { fileURLToPath } from "node:url";
import { drive } from "./driver.mjs";
import { connect, explain } from "./v1.mjs";

const bridge = fileURLToPath(new URL("node_modules/mcp-remote/dist/proxy.js", import.meta.url));

function command(spec) {
  const args = [bridge, spec.url, "--allow-http", "--transport", "http-only", "--protocol", spec.era];
  if (spec.token) args.push("--header", "Authorization:${MCP_AUTHORIZATION}");
  return {
    command: process.execPath,
    args,
    env: { ...process.env, MCP_AUTHORIZATION: `Bearer ${spec.token}` },
  };
}

await drive(
  "mcp-remote",
  ["legacy", "auto"],
  async (spec) => {
    const transport = new StdioClientTransport(command(spec));
    let version;
    transport.setProtocolVersion = (negotiated) => (version = negotiated);
    return { ...(await connect(transport, spec)), version };
  },
  explain,
);
