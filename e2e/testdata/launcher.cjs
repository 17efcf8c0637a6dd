// Runs the npm package's launcher as on another system, without its binary. Prints the
// signals that do not end the launcher, and those that it sends to the binary.
"use strict";
const childProcess = require("node:child_process");
const { EventEmitter } = require("node:events");

const [launcher, platform] = process.argv.slice(2);
Object.defineProperty(process, "platform", { value: platform });
const binary = new EventEmitter();
const sent = [];
binary.kill = (signal) => sent.push(signal);
childProcess.spawn = () => binary;
require(launcher);
const signals = ["SIGINT", "SIGBREAK", "SIGTERM", "SIGHUP"];
const survived = signals.filter((signal) => process.emit(signal, signal));
console.log(`survives ${survived}, sends ${sent}`);
process.exit();
