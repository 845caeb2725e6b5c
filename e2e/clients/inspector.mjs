// The Inspector's command line does one method in one run, each over a
// connection of its own.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { text } from "node:stream/consumers";
import { drive, headers } from "./driver.mjs";

const inspector = fileURLToPath(new URL("node_modules/.bin/mcp-inspector", import.meta.url));

class Failure extends Error {
  constructor(envelope) {
    super(envelope.message);
    this.envelope = envelope;
  }
}

// run returns the result of one method. A tool's own error is a result too,
// though the Inspector exits as if it had failed.
async function run(spec, ...args) {
  const header = Object.entries(headers(spec)).flatMap(([name, value]) => ["--header", `${name}: ${value}`]);
  const child = spawn(
    process.execPath,
    [inspector, "--cli", "--server-url", spec.url, "--transport", "http", ...header].concat(
      ["--protocol-era", spec.era, "--stored-auth-only", "--format", "json", "-q"],
      args,
    ),
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  if (stdout.trim()) return JSON.parse(stdout).result;
  throw new Failure(JSON.parse(stderr).error);
}

function explain(err) {
  if (!(err instanceof Failure)) return { kind: err.constructor.name, message: err.message };
  const { code, status, message } = err.envelope;
  return { kind: code, status, message };
}

// perform does what the call says, as far as the command line can.
function perform(spec, { method, name, json, arguments: args }) {
  const pairs = Object.entries(args).map(([key, value]) => `${key}=${value}`);
  switch (method) {
    case "tools/call":
      return run(spec, "--method", method, "--tool-name", name, "--tool-args-json", json ?? JSON.stringify(args));
    case "prompts/get":
      return run(spec, "--method", method, "--prompt-name", name, ...(pairs.length ? ["--prompt-args", ...pairs] : []));
    case "resources/read":
      return run(spec, "--method", method, "--uri", name);
    case "logging/setLevel":
      return run(spec, "--method", method, "--log-level", name);
    case "prompts/list":
    case "resources/list":
    case "resources/templates/list":
      return run(spec, "--method", method);
  }
  throw new Error(`the Inspector's command line has no ${method}`);
}

await drive(
  "inspector",
  ["legacy", "auto", "modern"],
  async (spec) => {
    if (spec.answer) throw new Error("the Inspector's command line answers no elicitation");
    const about = await run(spec, "--method", "initialize");
    return {
      version: about.protocolVersion,
      list: async () => (await run(spec, "--method", "tools/list")).tools,
      call: async (call) => perform(spec, call),
      close: async () => {},
    };
  },
  explain,
);
