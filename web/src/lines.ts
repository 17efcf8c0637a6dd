// How two texts are compared line by line: the same algorithm as in internal/hunk, so
// that the page shows the same hunks as everything else.

// maxEdits limits the search for a shortest edit. Lines between two anchors that differ
// by more become one hunk.
const maxEdits = 2000;

// A Hunk is a range of lines in which two texts differ: from the first line to the one
// after the last, counted from 0.
export interface Hunk {
  old: number;
  oldEnd: number;
  new: number;
  newEnd: number;
}

// hunksBetween returns the hunks between the lines of two texts, in order.
export function hunksBetween(oldText: readonly string[], newText: readonly string[]): Hunk[] {
  const numbers = new Map<string, number>();
  const number = (line: string) => {
    let n = numbers.get(line);
    if (n === undefined) numbers.set(line, n = numbers.size);
    return n;
  };
  const pairs = new Matching(oldText.map(number), newText.map(number)).match();
  const hunks: Hunk[] = [];
  let oldLine = 0, newLine = 0;
  const add = (o: number, n: number) => {
    if (oldLine < o || newLine < n) hunks.push({ old: oldLine, oldEnd: o, new: newLine, newEnd: n });
    [oldLine, newLine] = [o + 1, n + 1];
  };
  pairs.forEach((n, o) => {
    if (n >= 0) add(o, n);
  });
  add(oldText.length, newText.length);
  return hunks;
}

type Range = [o: number, oEnd: number, n: number, nEnd: number];

// A Matching pairs the lines of two texts. The numbers stand for the texts of lines.
class Matching {
  // For each old line, the new line that it became, or -1.
  private pairs: number[];

  constructor(private old: number[], private now: number[]) {
    this.pairs = old.map(() => -1);
  }

  // match pairs the lines that both texts have in common, in order.
  match(): number[] {
    let [o, oEnd, n, nEnd] = this.trim(0, this.old.length, 0, this.now.length);
    for (const [oldLine, newLine] of this.anchors(o, oEnd, n, nEnd)) {
      this.between(o, oldLine, n, newLine);
      this.pairs[oldLine] = newLine;
      [o, n] = [oldLine + 1, newLine + 1];
    }
    this.between(o, oEnd, n, nEnd);
    return this.pairs;
  }

  // trim pairs the first and the last lines of two ranges as long as they are equal, and
  // returns the ranges that are left.
  private trim(o: number, oEnd: number, n: number, nEnd: number): Range {
    for (; o < oEnd && n < nEnd && this.old[o] === this.now[n]; o++, n++) this.pairs[o] = n;
    for (; o < oEnd && n < nEnd && this.old[oEnd - 1] === this.now[nEnd - 1]; oEnd--, nEnd--) this.pairs[oEnd - 1] = nEnd - 1;
    return [o, oEnd, n, nEnd];
  }

  // anchors returns as many lines as possible that occur once in both ranges and are in
  // the same order.
  private anchors(o: number, oEnd: number, n: number, nEnd: number): [number, number][] {
    const several = -1;
    const places = (lines: number[], from: number, to: number) => {
      const at = new Map<number, number>();
      for (let i = from; i < to; i++) at.set(lines[i], at.has(lines[i]) ? several : i);
      return at;
    };
    const inNew = places(this.now, n, nEnd), inOld = places(this.old, o, oEnd);
    // The longest increasing sequence: last[i] ends the best one of i+1 anchors.
    const all: [number, number][] = [], last: number[] = [], before: number[] = [];
    for (let i = o; i < oEnd; i++) {
      const at = inNew.get(this.old[i]) ?? several;
      if (at === several || inOld.get(this.old[i]) === several) continue;
      let p = 0;
      for (let end = last.length; p < end;) {
        const mid = (p + end) >> 1;
        if (all[last[mid]][1] > at) end = mid;
        else p = mid + 1;
      }
      last[p] = all.length;
      all.push([i, at]);
      before.push(p > 0 ? last[p - 1] : -1);
    }
    const found: [number, number][] = [];
    for (let i = last.at(-1) ?? -1; i >= 0; i = before[i]) found.push(all[i]);
    return found.reverse();
  }

  // between pairs the lines of two ranges with as few edits as possible (Myers 1986).
  private between(...range: Range) {
    const [o, oEnd, n, nEnd] = this.trim(...range);
    const oldCount = oEnd - o, newCount = nEnd - n;
    if (!oldCount || !newCount) return;
    // reached[edits] has how many old lines each diagonal gets past. The diagonal of index
    // i has 2*i-edits old lines more than new lines.
    const reached: Int32Array[] = [];
    for (let edits = 0; edits <= Math.min(maxEdits, oldCount + newCount); edits++) {
      const row = new Int32Array(edits + 1);
      for (let i = 0; i <= edits; i++) {
        const last = reached[edits - 1];
        let x = !edits ? 0 : inserts(last, i) ? last[i] : last[i - 1] + 1;
        let y = x - (2 * i - edits);
        for (; x < oldCount && y < newCount && this.old[o + x] === this.now[n + y]; x++) y++;
        row[i] = x;
        if (x === oldCount && y === newCount) return this.back(reached, o, oEnd, n, nEnd);
      }
      reached.push(row);
    }
  }

  // back pairs the lines along the way to the ends of both ranges.
  private back(reached: Int32Array[], o: number, oEnd: number, n: number, nEnd: number) {
    let x = oEnd - o, y = nEnd - n;
    for (let edits = reached.length; edits >= 0; edits--) {
      let fromX = 0, fromY = 0, after = 0;
      if (edits) {
        const i = (x - y + edits) / 2, row = reached[edits - 1];
        const down = inserts(row, i);
        fromX = down ? row[i] : row[i - 1];
        fromY = fromX - (x - y + (down ? 1 : -1));
        after = down ? fromX : fromX + 1;
      }
      while (x > after) this.pairs[o + --x] = n + --y;
      [x, y] = [fromX, fromY];
    }
  }
}

// inserts reports whether the way to the i-th diagonal that leads farther is to insert a
// line, not to delete one. before is how far the diagonals got with one edit less.
function inserts(before: Int32Array, i: number): boolean {
  return i === 0 || (i < before.length && before[i - 1] < before[i]);
}
