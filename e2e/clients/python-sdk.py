from contextlib import asynccontextmanager

import httpx2
from driver import drive
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult


class Session:
    def __init__(self, client):
        self.client = client
        self.version = client.protocol_version

    async def list(self):
        page = await self.client.list_tools()
        tools = page.tools
        while page.next_cursor is not None:
            page = await self.client.list_tools(cursor=page.next_cursor)
            tools += page.tools
        return tools

    async def call(self, call):
        return await self.client.call_tool(call.name, call.arguments)


@asynccontextmanager
async def connect(spec):
    async def accept(context, params):
        return ElicitResult(action="accept", content=spec.answer)

    timeout = httpx2.Timeout(30, read=300)
    async with httpx2.AsyncClient(headers=spec.headers, timeout=timeout) as http:
        async with Client(
            streamable_http_client(spec.url, http_client=http),
            mode=spec.mode,
            elicitation_callback=accept if spec.answer is not None else None,
        ) as client:
            yield Session(client)


drive("python-sdk", connect)
