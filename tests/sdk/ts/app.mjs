// An AI app made of the official TypeScript SDK: connects, lists, uses what the plan names, prints
// one JSON object.
//
//   TRAYGATE_TOKEN=… node app.mjs legacy|modern|sdk URL '{"call": [...], "get": [...], "read": [...]}'
//
// `sdk` is the package of the legacy era, `legacy` and `modern` are the newer client's two modes.
const [era, url, plan = "{}"] = process.argv.slice(2);
const { call = [], get = [], read = [], complete = [] } = JSON.parse(plan);
const capabilities = { elicitation: {}, sampling: {}, roots: {} };
const me = { name: `ts-${era}`, version: "1.0.0" };
const headers = process.env.TRAYGATE_TOKEN ? { Authorization: `Bearer ${process.env.TRAYGATE_TOKEN}` } : {};

const answers = {
  "elicitation/create": () => ({ action: "accept", content: { name: "ada" } }),
  "sampling/createMessage": () => ({ role: "assistant", content: { type: "text", text: "hello" }, model: "m" }),
  "roots/list": () => ({ roots: [{ uri: "file:///somewhere", name: "somewhere" }] }),
};

async function dial() {
  if (era === "sdk") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const types = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(me, { capabilities });
    client.setRequestHandler(types.ElicitRequestSchema, answers["elicitation/create"]);
    client.setRequestHandler(types.CreateMessageRequestSchema, answers["sampling/createMessage"]);
    client.setRequestHandler(types.ListRootsRequestSchema, answers["roots/list"]);
    return [client, new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })];
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = era === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(me, { capabilities, versionNegotiation: { mode } });
  for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
  return [client, new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })];
}

async function pages(list, member) {
  const items = [];
  let cursor;
  do {
    const page = await list(cursor === undefined ? {} : { cursor });
    items.push(...page[member]);
    cursor = page.nextCursor;
  } while (cursor !== undefined && items.length < 10_000);
  return items;
}

// An error of the protocol is a result of this app as well.
async function each(asked, ask) {
  const outcomes = [];
  for (const one of asked) {
    outcomes.push(await ask(one).catch((error) => ({ error: { code: error.code, message: error.message } })));
  }
  return outcomes;
}

const [client, transport] = await dial();
await client.connect(transport);
const report = {
  server: client.getServerVersion(),
  version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
  tools: (await pages((p) => client.listTools(p), "tools")).map((tool) => tool.name),
  prompts: (await pages((p) => client.listPrompts(p), "prompts")).map((prompt) => prompt.name),
  resources: (await pages((p) => client.listResources(p), "resources")).map((resource) => resource.uri),
  templates: (await pages((p) => client.listResourceTemplates(p), "resourceTemplates")).map((t) => t.uriTemplate),
  called: await each(call, (one) => client.callTool(one)),
  got: await each(get, (one) => client.getPrompt(one)),
  read: await each(read, (uri) => client.readResource({ uri })),
  completed: await each(complete, (one) => client.complete(one)),
};
console.log(JSON.stringify(report));
await client.close();
