// An app made of the official TypeScript SDK that stays: prints its tools, one JSON array a line, now and whenever
// it is told that they changed. Ends with its standard input.
//
//   TRAYGATE_TOKEN=… node follow.mjs URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const client = new Client({ name: "ts-follower", version: "1.0.0" }, { capabilities: {} });
const headers = { Authorization: `Bearer ${process.env.TRAYGATE_TOKEN}` };

async function list() {
  const { tools } = await client.listTools();
  console.log(JSON.stringify(tools.map((tool) => tool.name)));
}

client.setNotificationHandler(ToolListChangedNotificationSchema, list);
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2]), { requestInit: { headers } }));
await list();
process.stdin.on("end", () => process.exit(0)).resume();
