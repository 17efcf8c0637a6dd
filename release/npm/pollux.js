#!/usr/bin/env node
// Runs the binary of this system. If npm may run scripts, install.js has
// replaced this file with the binary itself.
"use strict";
const { spawn } = require("node:child_process");
const path = require("node:path");
const { constants } = require("node:os");

const binary = path.join(__dirname, "..", "native", `${process.platform}-${process.arch}`, process.platform === "win32" ? "pollux.exe" : "pollux");
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit", windowsHide: true });
// Ctrl-C reaches the whole process group; forward other signals. On Windows, all events of
// the console reach the binary too, and forwarding would kill it.
const [shared, forwarded] = process.platform === "win32" ? [["SIGINT", "SIGBREAK", "SIGHUP"], []] : [["SIGINT"], ["SIGTERM", "SIGHUP"]];
for (const signal of shared) process.on(signal, () => {});
for (const signal of forwarded) process.on(signal, () => child.kill(signal));
child.on("error", (err) => {
  console.error(`pollux: this package has no binary for ${process.platform}-${process.arch} (${err.code}): build one with \`go build\``);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
