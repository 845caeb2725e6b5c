from contextlib import asynccontextmanager

from driver import drive
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport


class Session:
    def __init__(self, client):
        self.client = client
        self.version = client.protocol_version

    async def list(self):
        return await self.client.list_tools()

    async def call(self, call):
        return await self.client.call_tool(call.name, call.arguments, raise_on_error=False)


@asynccontextmanager
async def connect(spec):
    async def accept(message, response_type, params, context):
        return spec.answer

    async with Client(
        StreamableHttpTransport(spec.url, headers=spec.headers),
        mode=spec.mode,
        elicitation_handler=accept if spec.answer is not None else None,
    ) as client:
        yield Session(client)


drive("python-fastmcp", connect)
