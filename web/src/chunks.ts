// The chunks that CodeMirror shows, built from the hunks between lines. CodeMirror itself
// compares characters: that merges hunks which are close to each other, and fails for
// large texts.

import { Change, Chunk, presentableDiff } from "@codemirror/merge";
import type { Text } from "@codemirror/state";
import { hunksBetween } from "./lines";

// A chunk with longer texts has no marks for changed words.
const maxMarked = 20_000; // characters
const wordConfig = { scanLimit: 500 };

// lineFeeds returns the lines of a text, with their line feeds.
function lineFeeds(text: Text): string[] {
  const lines = text.toJSON();
  const last = lines.pop()!;
  const all = lines.map((line) => line + "\n");
  return last === "" ? all : [...all, last];
}

// offsets returns where each line starts, and where the text ends.
function offsets(lines: string[]): number[] {
  let at = 0;
  return [0, ...lines.map((line) => at += line.length)];
}

const complete = (lines: string[]) => lines.at(-1)?.endsWith("\n") ?? true;

function build(a: Text, b: Text): readonly Chunk[] {
  const oldLines = lineFeeds(a), newLines = lineFeeds(b);
  const oldAt = offsets(oldLines), newAt = offsets(newLines);
  // A chunk with a last line that has no line feed ends behind the text.
  const behind = complete(oldLines) && complete(newLines) ? 0 : 1;
  return hunksBetween(oldLines, newLines).map((h) => {
    const end = h.oldEnd === oldLines.length && h.newEnd === newLines.length ? behind : 0;
    const [fromA, toA, fromB, toB] = [oldAt[h.old], oldAt[h.oldEnd], newAt[h.new], newAt[h.newEnd]];
    return new Chunk(marks(a.sliceString(fromA, toA), b.sliceString(fromB, toB)), fromA, toA + end, fromB, toB + end);
  });
}

// marks returns what has changed inside a chunk.
export function marks(a: string, b: string): readonly Change[] {
  if (!a || !b || a.length + b.length > maxMarked) return [new Change(0, a.length, 0, b.length)];
  return presentableDiff(a, b, wordConfig);
}

// useLineHunks makes CodeMirror show these chunks. It calls the functions that it exports
// as static methods of Chunk, and has no option for others.
export function useLineHunks() {
  Chunk.build = build;
  Chunk.updateA = (_chunks, a, b) => build(a, b);
  Chunk.updateB = (_chunks, a, b) => build(a, b);
}
