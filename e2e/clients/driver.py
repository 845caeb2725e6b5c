"""The command line and the output that both Python drivers have, described in
README.md. A driver connects, lists every tool and makes the calls; what goes
wrong on the way is part of the answer, never a crash."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

import httpx2
from mcp import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

MODES = {"legacy": "legacy", "auto": "auto", "modern": "2026-07-28"}


@dataclass
class Call:
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    method: str = "tools/call"
    progress: bool = False
    cancel: bool = False
    logLevel: str = ""
    steps: list[str] = field(default_factory=list)

    @property
    def meta(self) -> dict[str, Any] | None:
        return {"io.modelcontextprotocol/logLevel": self.logLevel} if self.logLevel else None

    @property
    def reference(self) -> PromptReference | ResourceTemplateReference:
        """What is completed; a template is told from a prompt by its braces."""
        if "{" in self.name:
            return ResourceTemplateReference(uri=self.name)
        return PromptReference(name=self.name)


class Inbox:
    """Keeps the notifications that came for no call, until one is awaited."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []
        self.news = asyncio.Event()

    def put(self, method: str, text: str) -> None:
        self.notes.append((method, text))
        self.news.set()

    async def message(self, params: Any) -> None:
        data = params.data
        self.put("notifications/message", data if isinstance(data, str) else json.dumps(data))

    async def take(self, method: str, part: str) -> str:
        """Waits for a notification with this text in it and returns the first."""
        async with asyncio.timeout(10):
            while True:
                for note in self.notes:
                    if note[0] == method and part in note[1]:
                        self.notes.remove(note)
                        return note[1]
                self.news.clear()
                await self.news.wait()


@dataclass
class Spec:
    url: str
    era: str
    calls: list[Call]
    answer: dict[str, Any] | None

    @property
    def mode(self) -> str:
        return MODES[self.era]

    @property
    def headers(self) -> dict[str, str]:
        token = os.environ.get("MCP_TOKEN", "")
        return {"Authorization": f"Bearer {token}"} if token else {}


def read_call(text: str) -> Call:
    if text.startswith("{"):
        return Call(**json.loads(text))
    name, _, arguments = text.partition("=")
    try:
        return Call(name, json.loads(arguments))
    except ValueError as err:
        raise argparse.ArgumentTypeError(f"{text}: want NAME=JSON: {err}") from err


def read_spec() -> Spec:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--era", choices=MODES, default="legacy")
    parser.add_argument("--call", type=read_call, action="append", default=[])
    parser.add_argument("--answer", type=json.loads)
    args = parser.parse_args()
    return Spec(args.url, args.era, args.call, args.answer)


def explain(err: BaseException) -> dict[str, Any]:
    """Says what a client raised, as the JavaScript drivers do."""
    while isinstance(err, BaseExceptionGroup):
        err = err.exceptions[0]
    if isinstance(err, MCPError):
        problem = {"code": err.code, "message": err.message}
        return problem if err.data is None else {**problem, "data": err.data}
    if isinstance(err, httpx2.HTTPStatusError):
        return {"status": err.response.status_code, "kind": type(err).__name__, "message": str(err)}
    return {"kind": type(err).__name__, "message": str(err)}


def answered(name: str, result: Any) -> dict[str, Any]:
    """Describes the result of a call: a list's names as they are, and what text
    there is of anything else."""
    if isinstance(result, list):
        return {"name": name, "ok": True, "isError": False, "text": "", "items": result}
    failed = getattr(result, "is_error", False)
    return {"name": name, "ok": not failed, "isError": failed, "text": "\n".join(texts(result))}


def texts(result: Any) -> list[str]:
    if isinstance(result, str):
        return [result]
    blocks = [*getattr(result, "content", []), *(message.content for message in getattr(result, "messages", []))]
    found = [block.text for block in blocks if block.type == "text"]
    for contents in getattr(result, "contents", []):
        found.append(getattr(contents, "text", None) or contents.blob)
    return found


async def perform(client: Any, call: Call) -> Any:
    """Does what the call says, and cancels it at its first progress if it says so."""
    if not (call.progress or call.cancel):
        return await client.call(call, None)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        call.steps.append(f"{progress:g}/{total:g}")
        if call.cancel:
            task.cancel()

    task = asyncio.ensure_future(client.call(call, progressed))
    try:
        return await task
    except asyncio.CancelledError as err:
        raise RuntimeError("not wanted any more") from err


async def attempt(client: Any, call: Call) -> dict[str, Any]:
    try:
        out = answered(call.name, await perform(client, call))
    except Exception as err:
        out = {"name": call.name, "ok": False, "isError": False, "error": explain(err)}
    return {**out, "progress": call.steps} if call.steps else out


async def run(name: str, client_class: Any, spec: Spec) -> dict[str, Any]:
    out: dict[str, Any] = {"client": name, "era": spec.era, "version": "", "tools": [], "calls": []}
    stage = "connect"
    try:
        async with client_class(spec) as client:
            out["version"] = client.version
            stage = "list"
            out["tools"] = [tool.name for tool in await client.list()]
            for call in spec.calls:
                out["calls"].append(await attempt(client, call))
            stage = "close"
    except Exception as err:
        out["fault"] = {"stage": stage, **explain(err)}
    return out


def drive(name: str, client_class: Any) -> None:
    """Runs one client. client_class(spec) is an asynchronous context manager
    that connects and gives an object with version, list() and call(call,
    progressed)."""
    out = asyncio.run(run(name, client_class, read_spec()))
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()
