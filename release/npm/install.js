// Replaces the launcher with this system's binary, so that no second process
// is needed, and deletes the binaries of other systems. After a failure the
// launcher remains, which works too.
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
    fs.rmSync(next, { force: true }); // it remains if the launcher is already the binary
  }
} catch (err) {
  console.warn(`pollux: Node will start it (${err.message})`);
}
