// node bridge.mjs SDK-DIRECTORY POLLUX: a client of the bridge on the npm SDK,
// which checks each message against the protocol's schemas. It prints what it
// receives and exits on any error.
import { createRequire } from "node:module";
const require = createRequire(process.argv[2] + "/package.json");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { ListRootsRequestSchema } = require("@modelcontextprotocol/sdk/types.js");

const fail = (what) => (err) => {
  console.error(what, err);
  process.exit(1);
};
process.on("unhandledRejection", fail("unhandled"));

const client = new Client({ name: "npm-sdk", version: "1" }, { capabilities: { roots: { listChanged: true } } });
client.onerror = (err) => {
  // The SDK handles an answer before the progress that arrived together with it.
  if (!String(err).includes("progress notification for an unknown token")) fail("error")(err);
};
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: "file://" + process.cwd() }] }));
await client.connect(new StdioClientTransport({ command: process.argv[3], args: ["bridge"], env: process.env, stderr: "inherit", cwd: "/" }));
console.log("tools", (await client.listTools()).tools.map((t) => t.name).join(","));

const progress = [];
const call = (name, args) =>
  client.callTool({ name, arguments: args }, undefined, { timeout: 80_000, resetTimeoutOnProgress: true, onprogress: (p) => progress.push(p.message) });
const first = (r) => r.content[0].text;

let r = await call("query", { prompt: "what does hello.txt say?" });
console.log("query", first(r), r._meta.model, r._meta.partial);
console.log("progress", progress.some((text) => text.includes("It says")));
r = await call("query", { prompt: "long" });
const { cacheKey, total } = r._meta.chunk;
let joined = first(r);
for (let chunkIndex = 2; chunkIndex <= total; chunkIndex++) joined += first(await call("fetch-chunk", { cacheKey, chunkIndex }));
console.log("long", total > 1, joined === Array.from({ length: 4000 }, (_, i) => (i * 7919) % 10007).join(" "));
r = await call("structured", { prompt: "json", schema: { type: "object", required: ["a"] } });
console.log("structured", first(r), JSON.stringify(r.structuredContent), r.content.length);
for (const prompt of ["edit it", "change nothing"]) {
  // The SDK checks structuredContent against the tool's output schema.
  r = await call("change", { prompt });
  console.log("change", r.isError ?? false, r.structuredContent.edits.length, JSON.stringify(r.structuredContent.edits[0]?.new));
}
r = await call("query", { prompt: "x", timeout: 0 });
console.log("error", r.isError, first(r));
r = await call("ping", {});
console.log("ping", r.isError ?? false, first(r).includes("0.61.0"));

const abort = new AbortController();
const hanging = client.callTool({ name: "query", arguments: { prompt: "hang" } }, undefined, { signal: abort.signal });
setTimeout(() => abort.abort("enough"), 2500);
await hanging.catch(() => console.log("cancelled"));
r = await call("query", { prompt: "what does hello.txt say?" });
console.log("again", first(r));
await client.close();
