// Puts this system's binary in the place of the launcher, so that no second
// process stays beside it, and drops the other systems' ones. Whatever fails
// leaves the launcher, which works, too.
"use strict";
const fs = require("node:fs");
const path = require("node:path");

const native = path.join(__dirname, "native");
const ours = `${process.platform}-${process.arch}`;
try {
  for (const name of fs.readdirSync(native)) {
    if (name !== ours) fs.rmSync(path.join(native, name), { recursive: true });
  }
  if (process.platform !== "win32") {
    const launcher = path.join(__dirname, "bin", "pollux");
    const binary = path.join(native, ours, "pollux");
    const next = launcher + ".new";
    fs.chmodSync(binary, 0o755);
    fs.rmSync(next, { force: true });
    fs.linkSync(binary, next);
    fs.renameSync(next, launcher);
    fs.rmSync(next, { force: true }); // which stays if the launcher is the binary already
  }
} catch (err) {
  console.warn(`pollux: it will be started by Node (${err.message})`);
}
