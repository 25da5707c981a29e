"""An AI app made of the official Python SDK: connects, lists, uses what the plan names, prints one
JSON object.

    TRAYGATE_TOKEN=... python app.py legacy|modern URL '{"call": [...], "get": [...], "read": [...]}'
"""

import json
import os
import sys

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "ada"})


async def sample(_context, _params):
    text = types.TextContent(type="text", text="hello")
    return types.CreateMessageResult(role="assistant", content=text, model="m")


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///somewhere", name="somewhere")])


async def pages(ask, member):
    items, cursor = [], None
    while len(items) < 10_000:
        page = await ask(cursor=cursor)
        items += getattr(page, member)
        cursor = page.next_cursor
        if cursor is None:
            break
    return items


async def each(asked, ask):
    """An error of the protocol is a result of this app as well."""
    outcomes = []
    for one in asked:
        try:
            result = await ask(one)
            outcomes.append(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        except MCPError as error:
            outcomes.append({"error": {"code": error.error.code, "message": error.error.message}})
    return outcomes


async def main(era, url, plan):
    token = os.environ.get("TRAYGATE_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    mode = "legacy" if era == "legacy" else "2026-07-28"
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(
            transport,
            mode=mode,
            client_info=types.Implementation(name=f"py-{era}", version="1.0.0"),
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
        ) as client:
            tools = await pages(client.list_tools, "tools")
            prompts = await pages(client.list_prompts, "prompts")
            resources = await pages(client.list_resources, "resources")
            templates = await pages(client.list_resource_templates, "resource_templates")
            report = {
                "version": client.protocol_version,
                "tools": [tool.name for tool in tools],
                "prompts": [prompt.name for prompt in prompts],
                "resources": [str(resource.uri) for resource in resources],
                "templates": [template.uri_template for template in templates],
                "called": await each(
                    plan.get("call", []),
                    lambda one: client.call_tool(one["name"], one.get("arguments")),
                ),
                "got": await each(
                    plan.get("get", []),
                    lambda one: client.get_prompt(one["name"], one.get("arguments")),
                ),
                "read": await each(plan.get("read", []), client.read_resource),
            }
    print(json.dumps(report))


if __name__ == "__main__":
    era, url, *plan = sys.argv[1:]
    anyio.run(main, era, url, json.loads(plan[0]) if plan else {})
