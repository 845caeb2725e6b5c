import {
  Client,
  ProtocolError,
  SdkError,
  SdkHttpError,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { drive, headers, identity } from "./driver.mjs";
import { Inbox, perform, text } from "./operations.mjs";

const modes = { legacy: "legacy", auto: "auto", modern: { pin: "2026-07-28" } };

function explain(err) {
  if (err instanceof ProtocolError) return { code: err.code, message: err.message, data: err.data };
  if (err instanceof SdkHttpError) return { status: err.status, kind: err.code, message: err.message };
  if (err instanceof SdkError) return { kind: err.code, message: err.message };
  return { kind: err.constructor.name, message: err.message ?? String(err) };
}

function capabilities(spec) {
  const declared = {};
  if (spec.answer) declared.elicitation = { form: {} };
  if (spec.sample !== undefined) declared.sampling = {};
  if (spec.roots) declared.roots = {};
  return declared;
}

function answer(client, spec) {
  if (spec.answer) client.setRequestHandler("elicitation/create", () => ({ action: "accept", content: spec.answer }));
  if (spec.sample !== undefined) {
    const content = { type: "text", text: spec.sample };
    client.setRequestHandler("sampling/createMessage", () => ({ model: "none", role: "assistant", content }));
  }
  if (spec.roots) client.setRequestHandler("roots/list", () => ({ roots: spec.roots.map((uri) => ({ uri })) }));
}

await drive(
  "ts-v2",
  Object.keys(modes),
  async (spec) => {
    const transport = new StreamableHTTPClientTransport(new URL(spec.url), { requestInit: { headers: headers(spec) } });
    const client = new Client(identity, { capabilities: capabilities(spec), versionNegotiation: { mode: modes[spec.era] } });
    answer(client, spec);
    const inbox = new Inbox();
    client.setNotificationHandler("notifications/message", ({ method, params }) => inbox.put(method, text(params.data)));
    client.setNotificationHandler("notifications/resources/updated", ({ method, params }) => inbox.put(method, params.uri));
    await client.connect(transport);
    const version = client.getNegotiatedProtocolVersion();
    const callTool = (params, options) => client.callTool(params, options);
    const subscribe = async (uri) => {
      if (version < modes.modern.pin) return client.subscribeResource({ uri });
      await client.listen({ resourceSubscriptions: [uri] });
      return {};
    };
    const call = (c) => perform(client, inbox, c, callTool, subscribe);
    return {
      version,
      call,
      list: async () => (await call({ method: "tools/list" })).tools,
      close: async () => {
        await transport.terminateSession();
        await client.close();
      },
    };
  },
  explain,
);
