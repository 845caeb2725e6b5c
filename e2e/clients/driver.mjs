// The command line and the output that every JavaScript driver has, described
// in README.md. A driver connects, lists every tool and makes the calls; what
// goes wrong on the way is part of the answer, never a crash.
import { parseArgs } from "node:util";

export const identity = { name: "regogate-e2e", version: "1.0.0" };

function readSpec(eras) {
  const { values } = parseArgs({
    options: {
      url: { type: "string" },
      era: { type: "string", default: "legacy" },
      call: { type: "string", multiple: true, default: [] },
      answer: { type: "string" },
      sample: { type: "string" },
      root: { type: "string", multiple: true },
    },
  });
  if (!values.url) throw new Error("--url is missing");
  if (!eras.includes(values.era)) throw new Error(`--era ${values.era}: want one of ${eras.join(", ")}`);
  return {
    url: values.url,
    era: values.era,
    token: process.env.MCP_TOKEN ?? "",
    calls: values.call.map(readCall),
    answer: values.answer === undefined ? undefined : readJSON("--answer", values.answer),
    sample: values.sample,
    roots: values.root,
  };
}

function readCall(text) {
  if (text.startsWith("{")) return { arguments: {}, ...readJSON("--call", text) };
  const cut = text.indexOf("=");
  if (cut < 1) throw new Error(`--call ${text}: want NAME=JSON`);
  const name = text.slice(0, cut);
  const json = text.slice(cut + 1);
  return { method: "tools/call", name, json, arguments: readJSON(`--call ${name}`, json) };
}

function readJSON(flag, text) {
  try {
    return JSON.parse(text);
  } catch (err) {
    throw new Error(`${flag} ${text}: ${err.message}`);
  }
}

// usage returns what the command line says, or ends the process with one line
// on what is wrong with it.
function usage(eras) {
  try {
    return readSpec(eras);
  } catch (err) {
    console.error(err.message);
    process.exit(2);
  }
}

// headers carries the token, where there is one.
export function headers(spec) {
  return spec.token ? { Authorization: `Bearer ${spec.token}` } : {};
}

// answered describes the result of a call by its method: what a list holds, what
// text there is, what completes.
export function answered(name, result) {
  const items = listed(result);
  const isError = result.isError === true;
  const out = { name, ok: !isError, isError, text: texts(result).join("\n") };
  return items ? { ...out, items } : out;
}

function listed(result) {
  if (result.completion) return result.completion.values;
  if (result.resources) return result.resources.map((r) => r.uri);
  if (result.resourceTemplates) return result.resourceTemplates.map((r) => r.uriTemplate);
  return (result.prompts ?? result.tools)?.map((p) => p.name);
}

// texts are those of a tool's content, a prompt's messages or a resource's contents.
function texts(result) {
  const blocks = [...(result.content ?? []), ...(result.messages ?? []).map((m) => m.content)];
  const found = blocks.filter((c) => c.type === "text").map((c) => c.text);
  for (const contents of result.contents ?? []) found.push(contents.text ?? contents.blob);
  return found;
}

// drive runs one client that speaks some eras. open returns a session {version,
// list(), call(call), close()}; explain turns what the client threw into {code,
// status, kind, message, data}, each of them optional.
export async function drive(client, eras, open, explain) {
  const spec = usage(eras);
  const out = { client, era: spec.era, version: "", tools: [], calls: [] };
  let session;
  let stage = "connect";
  try {
    session = await open(spec);
    out.version = session.version ?? "";
    stage = "list";
    out.tools = (await session.list()).map((tool) => tool.name);
    for (const call of spec.calls) {
      out.calls.push(await attempt(session, call, explain));
    }
    stage = "close";
    await session.close();
  } catch (err) {
    out.fault = { stage, ...explain(err) };
  }
  process.stdout.write(JSON.stringify(out) + "\n", () => process.exit(0));
}

async function attempt(session, call, explain) {
  try {
    return { ...answered(call.name, await session.call(call)), ...told(call) };
  } catch (err) {
    return { name: call.name, ok: false, isError: false, error: explain(err), ...told(call) };
  }
}

function told(call) {
  return call.steps ? { progress: call.steps } : {};
}
