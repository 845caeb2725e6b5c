// A server of the second TypeScript SDK over stdio, which speaks both eras. It
// offers the same as goserver.go, so that both can be expected alike.
import { McpServer, ResourceTemplate, acceptedContent, completable, inputRequired } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";

const said = (text) => ({ content: [{ type: "text", text }] });
const beginning = (all) => (value) => all.filter((one) => one.startsWith(value));

function tools(server) {
  const object = (shape) => ({ inputSchema: z.object(shape) });
  server.registerTool("echo", object({ message: z.string() }), ({ message }) => said(`Echo: ${message}`));
  server.registerTool("count", object({ steps: z.number(), pause: z.number() }), count);
  server.registerTool("log", object({ message: z.string() }), async ({ message }, { mcpReq }) => {
    await mcpReq.log("debug", `debug: ${message}`);
    await mcpReq.log("warning", `warning: ${message}`);
    return said("logged");
  });
  server.registerTool("ask", object({}), (_, { mcpReq }) => {
    const schema = z.object({ name: z.string() });
    const answer = acceptedContent(mcpReq.inputResponses, "who", schema);
    if (answer) return said(`accept ${answer.name}`);
    const who = inputRequired.elicit({ message: "Who is calling?", requestedSchema: schema });
    return inputRequired({ inputRequests: { who } });
  });
}

async function count({ steps, pause }, { mcpReq }) {
  const progressToken = mcpReq._meta?.progressToken;
  for (let progress = 1; progress <= steps; progress++) {
    await sleep(pause, undefined, { signal: mcpReq.signal });
    if (progressToken !== undefined) {
      await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: steps } });
    }
  }
  return said(`counted ${steps}`);
}

function prompts(server) {
  const message = (text) => ({ messages: [{ role: "user", content: { type: "text", text } }] });
  const name = completable(z.string(), beginning(["Ann", "Anton", "Bert"]));
  server.registerPrompt("greet", { argsSchema: z.object({ name }) }, ({ name }) => message(`Greet ${name}.`));
  server.registerPrompt("plan", {}, () => message("Make a plan."));
}

function resources(server) {
  const read = async (uri) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: `This is ${uri.href}.` }] });
  const origin = process.argv[2];
  for (const name of ["first", "second"]) server.registerResource(name, `${origin}://notes/${name}`, {}, read);
  const items = new ResourceTemplate(`${origin}://items/{id}`, { list: undefined, complete: { id: beginning(["10", "11", "20"]) } });
  server.registerResource("items", items, {}, read);
}

serveStdio(() => {
  const server = new McpServer({ name: "typescript", version: "1.0.0" }, { capabilities: { logging: {} }, instructions: "Made for tests." });
  tools(server);
  prompts(server);
  resources(server);
  return server;
});
