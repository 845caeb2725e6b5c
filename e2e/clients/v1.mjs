// A session of the first TypeScript SDK over any of its transports.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPError } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, McpError } from "@modelcontextprotocol/sdk/types.js";
import { identity } from "./driver.mjs";

export async function connect(transport, spec) {
  const capabilities = spec.answer ? { elicitation: { form: {} } } : {};
  const client = new Client(identity, { capabilities });
  if (spec.answer) {
    client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: spec.answer }));
  }
  await client.connect(transport);
  return client;
}

export async function list(client) {
  const tools = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    tools.push(...page.tools);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return tools;
}

export function explain(err) {
  if (err instanceof McpError) return { code: err.code, message: err.message, data: err.data };
  if (err instanceof StreamableHTTPError) return { status: err.code, kind: err.constructor.name, message: err.message };
  return { kind: err.constructor.name, message: err.message };
}
