// The view of one diff: side by side if there is room, otherwise unified. Both edit
// the same text.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { acceptChunk, type Change, type Chunk, getChunks, getOriginalDoc, goToNextChunk, goToPreviousChunk, MergeView, unifiedMergeView } from "@codemirror/merge";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension, type Range, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";
import { marks as changesIn, useLineHunks } from "./chunks";
import { language } from "./language";
import { type Hunk, hunksBetween } from "./lines";

// The style sheet sets the colours, so that light and dark follow the system.
const colours = HighlightStyle.define([
  { tag: [t.keyword, t.modifier, t.operatorKeyword], class: "tok-keyword" },
  { tag: [t.string, t.special(t.string), t.regexp], class: "tok-string" },
  { tag: [t.comment, t.meta], class: "tok-comment" },
  { tag: [t.number, t.bool, t.null, t.atom], class: "tok-number" },
  { tag: [t.definition(t.variableName), t.function(t.variableName), t.heading], class: "tok-name" },
  { tag: [t.typeName, t.className, t.tagName, t.propertyName], class: "tok-type" },
]);

useLineHunks();

// tabbed is set while the focus moves because of Tab. A user who only passes through a text
// with it must not write tabs into the file: see tabsPass.
let tabbed = false;
addEventListener("keydown", (e) => tabbed = e.key === "Tab", { capture: true });
addEventListener("pointerdown", () => tabbed = false, { capture: true });

// tabsPass lets Tab move on from a text that the focus entered with it, until it is edited.
const tabsPass: Extension = [
  EditorView.domEventHandlers({ focus: (_, view) => view.setTabFocusMode(tabbed) }),
  EditorView.updateListener.of((u) => {
    if (u.docChanged) u.view.setTabFocusMode(false);
  }),
];

// hunkAt returns the hunk at the cursor.
function hunkAt(state: EditorState): Chunk | undefined {
  const at = state.selection.main.head;
  return getChunks(state)?.chunks.find((c) => c.fromB <= at && at <= c.endB);
}

// currentHunk marks the hunk at the cursor, on which keys act.
const mark = Decoration.line({ class: "current-hunk" });
const currentHunk = ViewPlugin.define((view) => ({
  marks: marks(view),
  update(u) {
    this.marks = marks(u.view);
  },
}), { decorations: (plugin) => plugin.marks });

function marks(view: EditorView) {
  const hunk = hunkAt(view.state);
  const lines: Range<Decoration>[] = [];
  if (hunk) {
    const { doc } = view.state;
    const end = Math.min(hunk.endB, view.viewport.to, doc.length);
    for (let at = Math.max(hunk.fromB, doc.lineAt(view.viewport.from).from); at <= end; at = doc.lineAt(at).to + 1) {
      lines.push(mark.range(doc.lineAt(at).from));
    }
  }
  return Decoration.set(lines);
}

// yours marks what the user has changed in hunks since the agent proposed them: the lines,
// and in them the text that the agent did not write.
const yourLine = Decoration.line({ class: "yours", attributes: { title: "Your edit" } });
const yourText = Decoration.mark({ class: "your-text" });

function yours(proposed: string): Extension {
  const lines = proposed.split("\n");
  let doc: Text | undefined, hunks: Hunk[] = [];
  const texts = new Map<Hunk, readonly Change[]>();
  const textsIn = (h: Hunk, from: number, text: Text) => {
    let changes = texts.get(h);
    if (!changes) {
      const old = lines.slice(h.old, h.oldEnd).join("\n");
      texts.set(h, changes = changesIn(old, text.sliceString(from, text.line(h.newEnd).to)));
    }
    return changes;
  };
  const find = ({ state, viewport }: EditorView): DecorationSet => {
    if (doc !== state.doc) {
      hunks = hunksBetween(lines, (doc = state.doc).toJSON());
      texts.clear();
    }
    const chunks = getChunks(state)?.chunks ?? [];
    const first = state.doc.lineAt(viewport.from).number, last = state.doc.lineAt(viewport.to).number;
    const found: Range<Decoration>[] = [];
    for (const h of hunks) {
      for (let n = Math.max(h.new + 1, first); n <= Math.min(h.newEnd, last); n++) {
        const { from, to } = state.doc.line(n);
        if (!chunks.some((c) => c.fromB <= from && from <= c.endB)) continue;
        found.push(yourLine.range(from));
        const start = state.doc.line(h.new + 1).from;
        for (const c of textsIn(h, start, state.doc)) {
          const [a, b] = [Math.max(start + c.fromB, from), Math.min(start + c.toB, to)];
          if (a < b) found.push(yourText.range(a, b));
        }
      }
    }
    return Decoration.set(found, true);
  };
  return ViewPlugin.define((view) => ({
    lines: find(view),
    update(u: ViewUpdate) {
      this.lines = find(u.view);
    },
  }), { decorations: (plugin) => plugin.lines });
}

// between returns the text between two positions. The second may lie behind the text.
const between = (text: Text, from: number, to: number) => text.sliceString(from, Math.min(to, text.length));

// control makes a chunk's button in the unified view. Its label differs from the
// labels of the buttons that decide.
function control(type: "reject" | "accept", action: (e: MouseEvent) => void, kept: () => void): HTMLElement {
  const b = document.createElement("button");
  b.textContent = type === "accept" ? "Keep" : "Undo";
  b.title = type === "accept" ? "Keep this hunk in the text and hide its marks (s); press Accept to decide" : "Undo this hunk (u)";
  b.onmousedown = (e) => e.preventDefault(); // keep the focus in the text
  b.onclick = (e) => { // a click, or a key
    action(e);
    if (type === "accept") kept();
  };
  return b;
}

export interface ViewOptions {
  parent: HTMLElement;
  path: string;
  original: string;
  proposed: string;
  content: string;
  unified: boolean;
  readOnly: boolean;
  nonce: string;
  changed(text: string): void;
  // kept is called after a change was kept, with the original text as now shown.
  kept(original: string): void;
  // moved is called after the cursor has moved.
  moved(): void;
  // left is called when the user leaves the text with Escape.
  left(): void;
}

export class DiffView {
  readonly editor: EditorView;
  private merge?: MergeView;
  private quiet = false;
  private undone?: number; // where a hunk was undone, if nothing was edited since
  private writing = new Compartment();

  constructor(private options: ViewOptions) {
    const common: Extension[] = [
      EditorView.cspNonce.of(options.nonce),
      EditorState.lineSeparator.of("\n"),
      lineNumbers(), highlightSpecialChars(), drawSelection(), bracketMatching(),
      search({ top: true }), highlightSelectionMatches(), language(options.path), syntaxHighlighting(colours),
      EditorView.lineWrapping,
      keymap.of([...searchKeymap]),
    ];
    const editable: Extension[] = [
      ...common, this.writing.of(EditorState.readOnly.of(options.readOnly)), history(), highlightActiveLine(), currentHunk, yours(options.proposed), tabsPass,
      EditorView.clipboardInputFilter.of((text) => text.replaceAll(/\r\n?/g, "\n")),
      keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab, { key: "Escape", run: () => (options.left(), true) }]),
      EditorView.contentAttributes.of({ "aria-label": `Proposed text of ${options.path}, ${options.readOnly ? "read-only" : "editable"}` }),
      EditorView.updateListener.of((u) => {
        if (u.docChanged) this.undone = undefined;
        if (u.docChanged && !this.quiet) options.changed(this.text());
        else if (u.selectionSet) options.moved();
      }),
    ];
    const kept = () => options.kept(getOriginalDoc(this.editor.state).toString());
    const fold = { margin: 4, minSize: 8 };
    if (options.unified) {
      this.editor = new EditorView({
        parent: options.parent,
        doc: options.content,
        extensions: [
          ...editable,
          unifiedMergeView({ original: options.original, mergeControls: options.readOnly ? false : (type, action) => control(type, action, kept), collapseUnchanged: fold }),
        ],
      });
      return;
    }
    this.merge = new MergeView({
      parent: options.parent,
      a: {
        doc: options.original,
        extensions: [
          ...common, EditorState.readOnly.of(true), EditorView.editable.of(false),
          EditorView.contentAttributes.of({ "aria-label": `Text of ${options.path} on disk`, tabindex: "0" }),
        ],
      },
      b: { doc: options.content, extensions: editable },
      revertControls: options.readOnly ? undefined : "a-to-b",
      renderRevertControl: () => {
        const b = document.createElement("button");
        b.className = "revert";
        b.title = "Undo this hunk (u)";
        b.textContent = "Undo";
        // The merge view handles mousedown only; a click without one comes from a key.
        b.onclick = (e) => {
          if (e.detail === 0) b.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true }));
        };
        return b;
      },
      collapseUnchanged: fold,
    });
    this.editor = this.merge.b;
  }

  text(): string {
    return this.editor.state.doc.toString();
  }

  // setText shows a text that was edited elsewhere.
  setText(text: string) {
    if (text === this.text()) return;
    this.quiet = true;
    this.editor.dispatch({ changes: { from: 0, to: this.editor.state.doc.length, insert: text } });
    this.quiet = false;
  }

  // replace replaces the text. The user can undo it.
  replace(text: string) {
    this.editor.dispatch({ changes: { from: 0, to: this.editor.state.doc.length, insert: text } });
  }

  // freeze makes the text read-only.
  freeze() {
    this.editor.dispatch({ effects: this.writing.reconfigure(EditorState.readOnly.of(true)) });
  }

  // next and previous move the cursor to another hunk, and show it with the text around it.
  next() {
    goToNextChunk(this.editor);
    this.moveTo(this.cursor());
  }

  previous() {
    goToPreviousChunk(this.editor);
    this.moveTo(this.cursor());
  }

  // goOn moves the cursor to the hunk at or after it, or else to the last one.
  private goOn() {
    const chunks = getChunks(this.editor.state)?.chunks ?? [];
    const hunk = chunks.find((c) => c.fromB >= this.cursor()) ?? chunks.at(-1);
    if (hunk) this.moveTo(hunk.fromB);
  }

  // first moves the cursor to the first hunk.
  first() {
    const chunk = getChunks(this.editor.state)?.chunks[0];
    if (chunk) this.moveTo(chunk.fromB);
  }

  cursor(): number {
    return this.editor.state.selection.main.head;
  }

  moveTo(position: number) {
    const at = Math.min(position, this.editor.state.doc.length);
    this.editor.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
  }

  // position returns which hunk the cursor is in, from 1, and how many there are.
  position(): { at: number; of: number } {
    const chunks = getChunks(this.editor.state)?.chunks ?? [];
    const hunk = hunkAt(this.editor.state);
    return { at: hunk ? chunks.indexOf(hunk) + 1 : 0, of: chunks.length };
  }

  private original(): Text {
    return this.merge ? this.merge.a.state.doc : getOriginalDoc(this.editor.state);
  }

  // undo replaces the hunk at the cursor with the original text, and goes on to the next
  // one. It reports whether there is one.
  undo(): boolean {
    const hunk = hunkAt(this.editor.state);
    if (!hunk) return false;
    this.edit(hunk.fromB, hunk.toB, between(this.original(), hunk.fromA, hunk.toA));
    this.undone = this.cursor();
    this.goOn();
    return true;
  }

  // keep hides the marks of the hunk at the cursor: the original text becomes equal. It goes
  // on to the next hunk, and reports whether there is one at the cursor.
  keep(): boolean {
    const hunk = hunkAt(this.editor.state);
    if (!hunk) return false;
    if (this.merge) {
      const { a, b } = this.merge;
      a.dispatch({ changes: { from: hunk.fromA, to: Math.min(hunk.toA, a.state.doc.length), insert: between(b.state.doc, hunk.fromB, hunk.toB) } });
    } else {
      acceptChunk(this.editor);
    }
    this.goOn();
    this.options.kept(this.original().toString());
    return true;
  }

  // take replaces the text around the cursor, or else that of the hunk that was just undone,
  // with that of the proposal. It reports whether they differ there.
  take(proposed: string): boolean {
    const { doc } = this.editor.state;
    const now = doc.toJSON(), lines = proposed.split("\n");
    const hunks = hunksBetween(lines, now);
    const hunk = [this.cursor(), this.undone].filter((at) => at !== undefined).map((at) => doc.lineAt(at).number - 1)
      .map((line) => hunks.find((h) => h.new <= line && line <= h.newEnd)).find(Boolean);
    if (!hunk) return false;
    // The edit includes the line feed after the hunk, or the one before it at the text's end.
    const [from, to] = [now.slice(0, hunk.new), now.slice(0, hunk.newEnd)].map((all) => all.reduce((n, l) => n + l.length + 1, 0));
    const insert = lines.slice(hunk.old, hunk.oldEnd).map((l) => l + "\n").join("");
    if (to <= doc.length) this.edit(from, to, insert);
    else if (from) this.edit(from - 1, doc.length, lines.slice(hunk.old, hunk.oldEnd).map((l) => "\n" + l).join(""));
    else this.edit(0, doc.length, proposed);
    return true;
  }

  // edit replaces a part of the text and moves the cursor there.
  private edit(from: number, to: number, insert: string) {
    this.editor.dispatch({ changes: { from, to: Math.min(to, this.editor.state.doc.length), insert }, selection: { anchor: from }, effects: EditorView.scrollIntoView(from, { y: "center" }), userEvent: "revert" });
  }

  destroy() {
    if (this.merge) this.merge.destroy();
    else this.editor.destroy();
  }
}
