from contextlib import asynccontextmanager

import httpx2
from driver import Inbox, drive
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, ResourceUpdatedNotification


class Session:
    def __init__(self, client, inbox):
        self.client = client
        self.inbox = inbox
        self.version = client.protocol_version

    async def list(self):
        return await self.pages("tools", self.client.list_tools)

    async def pages(self, member, method):
        page = await method()
        found = getattr(page, member)
        while page.next_cursor is not None:
            page = await method(cursor=page.next_cursor)
            found += getattr(page, member)
        return found

    async def call(self, call, progressed):
        client, name, arguments = self.client, call.name, call.arguments
        match call.method:
            case "tools/call":
                return await client.call_tool(name, arguments, progress_callback=progressed, meta=call.meta)
            case "prompts/list":
                return [prompt.name for prompt in await self.pages("prompts", client.list_prompts)]
            case "prompts/get":
                return await client.get_prompt(name, arguments)
            case "resources/list":
                return [str(found.uri) for found in await self.pages("resources", client.list_resources)]
            case "resources/templates/list":
                found = await self.pages("resource_templates", client.list_resource_templates)
                return [template.uri_template for template in found]
            case "resources/read":
                return await client.read_resource(name)
            case "completion/complete":
                context = arguments.get("context", {}).get("arguments")
                return (await client.complete(call.reference, arguments["argument"], context)).completion.values
            case "logging/setLevel":
                return await client.set_logging_level(name)
            case "resources/subscribe":
                return await client.subscribe_resource(name)
            case "await":
                return await self.inbox.take(name, arguments.get("contains", ""))
        raise ValueError(f"--call: method {call.method} is not known")


@asynccontextmanager
async def connect(spec):
    inbox = Inbox()

    async def accept(context, params):
        return ElicitResult(action="accept", content=spec.answer)

    async def notified(message):
        if isinstance(message, ResourceUpdatedNotification):
            inbox.put("notifications/resources/updated", str(message.params.uri))

    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=spec.headers, timeout=timeout) as http:
        async with Client(
            streamable_http_client(spec.url, http_client=http),
            mode=spec.mode,
            logging_callback=inbox.message,
            message_handler=notified,
            elicitation_callback=accept if spec.answer is not None else None,
        ) as client:
            yield Session(client, inbox)


drive("python-sdk", connect)
