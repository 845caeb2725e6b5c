// What both TypeScript SDKs' clients do alike, by the method of a call.

// Inbox keeps the notifications that came for no call, until one is awaited.
export class Inbox {
  notes = [];
  wake = () => {};

  put(method, text) {
    this.notes.push({ method, text });
    this.wake();
  }

  // take waits for a notification with this text in it and returns the first.
  async take(method, part) {
    const end = AbortSignal.timeout(10_000);
    for (;;) {
      const at = this.notes.findIndex((n) => n.method === method && n.text.includes(part));
      if (at >= 0) return this.notes.splice(at, 1)[0].text;
      await new Promise((resolve, reject) => {
        this.wake = resolve;
        end.onabort = () => reject(new Error(`no ${method} with ${JSON.stringify(part)} in 10 s`));
      });
    }
  }
}

// text is what a log message says.
export const text = (data) => (typeof data === "string" ? data : JSON.stringify(data));

// perform does what the call says. callTool(params, options) and subscribe(uri)
// are where the SDKs differ.
export async function perform(client, inbox, call, callTool, subscribe) {
  const { method, name, arguments: args } = call;
  switch (method) {
    case "tools/call":
      return callTool(tool(call), options(call));
    case "tools/list":
      return pages("tools", (p) => client.listTools(p));
    case "prompts/list":
      return pages("prompts", (p) => client.listPrompts(p));
    case "prompts/get":
      return client.getPrompt({ name, arguments: args });
    case "resources/list":
      return pages("resources", (p) => client.listResources(p));
    case "resources/templates/list":
      return pages("resourceTemplates", (p) => client.listResourceTemplates(p));
    case "resources/read":
      return client.readResource({ uri: name });
    case "completion/complete":
      return client.complete({ ref: reference(name), ...args });
    case "logging/setLevel":
      return client.setLoggingLevel(name);
    case "resources/subscribe":
      return subscribe(name);
    case "await":
      return { content: [{ type: "text", text: await inbox.take(name, args.contains ?? "") }] };
  }
  throw new Error(`--call: method ${method} is not known`);
}

// reference tells a template from a prompt by its braces.
const reference = (name) => (name.includes("{") ? { type: "ref/resource", uri: name } : { type: "ref/prompt", name });

function tool({ name, arguments: args, logLevel }) {
  const params = { name, arguments: args };
  if (logLevel) params._meta = { "io.modelcontextprotocol/logLevel": logLevel };
  return params;
}

// options ask for progress, and cancel the call at the first where it says so.
function options(call) {
  if (!call.progress && !call.cancel) return {};
  const abort = new AbortController();
  call.steps = [];
  return {
    signal: abort.signal,
    onprogress: ({ progress, total }) => {
      call.steps.push(`${progress}/${total}`);
      if (call.cancel) abort.abort("not wanted any more");
    },
  };
}

async function pages(member, list) {
  const all = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? undefined : { cursor });
    all.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return { [member]: all };
}
