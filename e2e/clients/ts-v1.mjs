import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { drive, headers } from "./driver.mjs";
import { connect, explain } from "./v1.mjs";

await drive(
  "ts-v1",
  ["legacy"],
  async (spec) => {
    const transport = new StreamableHTTPClientTransport(new URL(spec.url), { requestInit: { headers: headers(spec) } });
    const session = await connect(transport, spec);
    return {
      ...session,
      version: transport.protocolVersion,
      close: async () => {
        await transport.terminateSession();
        await session.close();
      },
    };
  },
  explain,
);
