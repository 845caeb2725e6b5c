from contextlib import asynccontextmanager

from driver import Inbox, drive
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport


class Session:
    def __init__(self, client, inbox):
        self.client = client
        self.inbox = inbox
        self.version = client.protocol_version

    async def list(self):
        return await self.client.list_tools()

    async def call(self, call, progressed):
        client, name, arguments = self.client, call.name, call.arguments
        match call.method:
            case "tools/call":
                return await client.call_tool(
                    name, arguments, progress_handler=progressed, raise_on_error=False, meta=call.meta
                )
            case "prompts/list":
                return [prompt.name for prompt in await client.list_prompts()]
            case "prompts/get":
                return await client.get_prompt(name, arguments)
            case "resources/list":
                return [str(found.uri) for found in await client.list_resources()]
            case "resources/templates/list":
                return [template.uri_template for template in await client.list_resource_templates()]
            case "resources/read":
                contents = await client.read_resource(name)
                return "\n".join(getattr(part, "text", None) or part.blob for part in contents)
            case "completion/complete":
                context = arguments.get("context", {}).get("arguments")
                return (await client.complete(call.reference, arguments["argument"], context)).values
            case "logging/setLevel":
                return await client.set_logging_level(name)
            case "await":
                return await self.inbox.take(name, arguments.get("contains", ""))
        raise ValueError(f"--call: method {call.method} is not known")


@asynccontextmanager
async def connect(spec):
    inbox = Inbox()

    async def accept(message, response_type, params, context):
        return spec.answer

    async with Client(
        StreamableHttpTransport(spec.url, headers=spec.headers),
        mode=spec.mode,
        log_handler=inbox.message,
        elicitation_handler=accept if spec.answer is not None else None,
    ) as client:
        yield Session(client, inbox)


drive("python-fastmcp", connect)
