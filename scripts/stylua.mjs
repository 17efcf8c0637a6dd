// Checks the format of Lua files, or with --write formats them, with the released
// StyLua as WebAssembly.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
const require = createRequire(new URL("../.cache/npm/stylua/", import.meta.url));
const { formatCode, Config, OutputVerification, IndentType } = require("@johnnymorganz/stylua");
const write = process.argv[2] === "--write";
let wrong = 0;
for (const file of process.argv.slice(write ? 3 : 2)) {
  const config = Config.new();
  config.column_width = 120;
  config.indent_type = IndentType.Spaces;
  config.indent_width = 2;
  const before = readFileSync(file, "utf8");
  const after = formatCode(before, config, undefined, OutputVerification.Full);
  if (after === before) continue;
  if (write) writeFileSync(file, after);
  else console.error(`${file}: not formatted: run node scripts/stylua.mjs --write FILE`);
  wrong++;
}
process.exit(wrong && !write ? 1 : 0);
