import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { drive, headers } from "./driver.mjs";
import { connect, explain, list } from "./v1.mjs";

await drive(
  "ts-v1",
  ["legacy"],
  async (spec) => {
    const transport = new StreamableHTTPClientTransport(new URL(spec.url), { requestInit: { headers: headers(spec) } });
    const client = await connect(transport, spec);
    return {
      version: transport.protocolVersion,
      list: () => list(client),
      call: (call) => client.callTool({ name: call.name, arguments: call.arguments }),
      close: async () => {
        await transport.terminateSession();
        await client.close();
      },
    };
  },
  explain,
);
