"""An upstream made of the official Python SDK, on standard input and output."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("python-upstream")


@server.tool()
def multiply(a: int, b: int) -> int:
    """Multiplies two whole numbers."""
    return a * b


@server.resource("py://motto")
def motto() -> str:
    return "explicit is better than implicit"


@server.resource("py://square/{number}")
def square(number: int) -> str:
    return str(number * number)


@server.prompt()
def review(code: str) -> str:
    return f"Review this:\n{code}"


if __name__ == "__main__":
    server.run("stdio")
