#!/usr/bin/env node
// Runs the binary of this system. After an installation that may run scripts,
// install.js has put the binary itself in this file's place.
"use strict";
const { spawn } = require("node:child_process");
const path = require("node:path");
const { constants } = require("node:os");

const binary = path.join(__dirname, "..", "native", `${process.platform}-${process.arch}`, process.platform === "win32" ? "pollux.exe" : "pollux");
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit", windowsHide: true });
// Ctrl-C reaches the whole group; the others are handed on.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("error", (err) => {
  console.error(`pollux: there is no binary for ${process.platform}-${process.arch} in this package (${err.code}): build it with \`go build\``);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
