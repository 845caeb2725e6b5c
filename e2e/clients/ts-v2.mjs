import {
  Client,
  ProtocolError,
  SdkError,
  SdkHttpError,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { drive, headers, identity } from "./driver.mjs";

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };

function explain(err) {
  if (err instanceof ProtocolError) return { code: err.code, message: err.message, data: err.data };
  if (err instanceof SdkHttpError) return { status: err.status, kind: err.code, message: err.message };
  if (err instanceof SdkError) return { kind: err.code, message: err.message };
  return { kind: err.constructor.name, message: err.message };
}

await drive(
  "ts-v2",
  Object.keys(modes),
  async (spec) => {
    const transport = new StreamableHTTPClientTransport(new URL(spec.url), { requestInit: { headers: headers(spec) } });
    const client = new Client(identity, {
      capabilities: spec.answer ? { elicitation: { form: {} } } : {},
      versionNegotiation: { mode: modes[spec.era] },
    });
    if (spec.answer) {
      client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: spec.answer }));
    }
    await client.connect(transport);
    return {
      version: client.getNegotiatedProtocolVersion(),
      list: async () => (await client.listTools()).tools,
      call: (call) => client.callTool({ name: call.name, arguments: call.arguments }),
      close: async () => {
        await transport.terminateSession();
        await client.close();
      },
    };
  },
  explain,
);
