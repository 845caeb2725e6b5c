// A session of the first TypeScript SDK over any of its transports.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPError } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  McpError,
  ResourceUpdatedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { identity } from "./driver.mjs";
import { Inbox, perform, text } from "./operations.mjs";

// connect returns a session but for its version.
export async function connect(transport, spec) {
  const capabilities = {};
  if (spec.answer) capabilities.elicitation = { form: {} };
  if (spec.sample !== undefined) capabilities.sampling = {};
  if (spec.roots) capabilities.roots = {};
  const client = new Client(identity, { capabilities });
  answer(client, spec);
  const inbox = new Inbox();
  client.setNotificationHandler(LoggingMessageNotificationSchema, ({ method, params }) => inbox.put(method, text(params.data)));
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ method, params }) => inbox.put(method, params.uri));
  await client.connect(transport);
  const callTool = (params, options) => client.callTool(params, undefined, options);
  const subscribe = (uri) => client.subscribeResource({ uri });
  const call = (c) => perform(client, inbox, c, callTool, subscribe);
  return { client, call, list: async () => (await call({ method: "tools/list" })).tools, close: () => client.close() };
}

function answer(client, spec) {
  if (spec.answer) client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: spec.answer }));
  if (spec.sample !== undefined) {
    client.setRequestHandler(CreateMessageRequestSchema, () => ({
      model: "none",
      role: "assistant",
      content: { type: "text", text: spec.sample },
    }));
  }
  if (spec.roots) client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: spec.roots.map((uri) => ({ uri })) }));
}

export function explain(err) {
  if (err instanceof McpError) return { code: err.code, message: err.message, data: err.data };
  if (err instanceof StreamableHTTPError) return { status: err.code, kind: err.constructor.name, message: err.message };
  return { kind: err.constructor.name, message: err.message ?? String(err) };
}
