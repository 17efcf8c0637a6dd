// node sdk.mjs SDK-DIRECTORY PORT TOKEN FILE: a client of the companion on the
// npm SDK, with the CLI's own schemas. It exits on any error.
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/package.json");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const z = require("zod");

const [, , , port, token, filePath] = process.argv;
const fail = (what) => (err) => {
  console.error(what, err);
  process.exit(1);
};
process.on("unhandledRejection", fail("unhandled"));

const waiting = [];
const told = [];
const tell = (line) => (waiting.length ? waiting.shift()(line) : told.push(line));
const hear = () => new Promise((done) => (told.length ? done(told.shift()) : waiting.push(done)));

const client = new Client({ name: "streamable-http-client", version: "0.61.0" });
client.onerror = fail("error");
let gets = 0;
let endStream;
const transport = new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
  fetch: async (url, init) => {
    const res = await fetch(url, init);
    if (init.method !== "GET") return res;
    gets++;
    // A stream that the test can end gracefully, as a server would.
    const reader = res.body.getReader();
    const body = new ReadableStream({
      start(c) {
        endStream = () => {
          c.close();
          return reader.cancel();
        };
      },
      async pull(c) {
        const { done, value } = await reader.read().catch(() => ({ done: true }));
        if (done) try { c.close(); } catch {}
        else try { c.enqueue(value); } catch {}
      },
    });
    return new Response(body, { status: res.status, headers: res.headers });
  },
});
await client.connect(transport);
const notification = (method, params) => z.object({ jsonrpc: z.literal("2.0").optional(), method: z.literal(method), params });
const file = z.object({
  path: z.string(), timestamp: z.number(), isActive: z.boolean().optional(), selectedText: z.string().optional(),
  cursor: z.object({ line: z.number(), character: z.number() }).optional(),
});
client.setNotificationHandler(
  notification("ide/contextUpdate", z.object({ workspaceState: z.object({ openFiles: z.array(file).optional(), isTrusted: z.boolean().optional() }).optional() })),
  (n) => tell(`context ${n.params.workspaceState.openFiles.length}`),
);
client.setNotificationHandler(
  notification("ide/diffAccepted", z.object({ filePath: z.string(), content: z.string() })),
  (n) => tell(n.params.filePath === filePath ? `accepted ${JSON.stringify(n.params.content)}` : "accepted another file"),
);
client.setNotificationHandler(
  notification("ide/diffRejected", z.object({ filePath: z.string() })),
  (n) => tell(n.params.filePath === filePath ? "rejected" : "rejected another file"),
);

console.log("tools " + (await client.listTools()).tools.map((t) => t.name).sort().join(","));
console.log(await hear()); // the first context
console.log(await hear()); // after the editor's
const open = (newContent) => client.callTool({ name: "openDiff", arguments: { filePath, newContent } });
const close = async () => {
  const res = await client.callTool({ name: "closeDiff", arguments: { filePath, suppressNotification: true } });
  console.log("closeDiff " + (res.isError ? "isError" : JSON.stringify(JSON.parse(res.content[0].text).content)));
};
console.log("openDiff " + JSON.stringify((await open("new\n")).content));
console.log(await hear());
await close();
await open("again\n");
await close();
await open("and again\n");
await endStream();
console.log(`${await hear()} on stream ${gets}`);
console.log(await hear());
process.exit(0);
