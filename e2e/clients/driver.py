"""The command line and the output that both Python drivers have, described in
README.md. A driver connects, lists every tool and makes the calls; what goes
wrong on the way is part of the answer, never a crash."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import MCPError

MODES = {"legacy": "legacy", "auto": "auto", "modern": "2026-07-28"}


@dataclass
class Call:
    name: str
    arguments: dict[str, Any]


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
    """Describes the result of a call."""
    text = [block.text for block in result.content if block.type == "text"]
    return {"name": name, "ok": not result.is_error, "isError": result.is_error, "text": "\n".join(text)}


async def attempt(client: Any, call: Call) -> dict[str, Any]:
    try:
        return answered(call.name, await client.call(call))
    except Exception as err:
        return {"name": call.name, "ok": False, "isError": False, "error": explain(err)}


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
    that connects and gives an object with version, list() and call(call)."""
    out = asyncio.run(run(name, client_class, read_spec()))
    json.dump(out, sys.stdout, separators=(",", ":"))
    print()
