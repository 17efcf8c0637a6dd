// The view of one diff: side by side if there is room, otherwise unified. Both edit
// the same text.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { cpp } from "@codemirror/lang-cpp";
import { css } from "@codemirror/lang-css";
import { go } from "@codemirror/lang-go";
import { html } from "@codemirror/lang-html";
import { java } from "@codemirror/lang-java";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { rust } from "@codemirror/lang-rust";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { getChunks, getOriginalDoc, goToNextChunk, goToPreviousChunk, MergeView, unifiedMergeView } from "@codemirror/merge";
import { highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { Compartment, EditorState, type Extension } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags as t } from "@lezer/highlight";

// The style sheet sets the colours, so that light and dark follow the system.
const colours = HighlightStyle.define([
  { tag: [t.keyword, t.modifier, t.operatorKeyword], class: "tok-keyword" },
  { tag: [t.string, t.special(t.string), t.regexp], class: "tok-string" },
  { tag: [t.comment, t.meta], class: "tok-comment" },
  { tag: [t.number, t.bool, t.null, t.atom], class: "tok-number" },
  { tag: [t.definition(t.variableName), t.function(t.variableName), t.heading], class: "tok-name" },
  { tag: [t.typeName, t.className, t.tagName, t.propertyName], class: "tok-type" },
]);

function language(path: string): Extension {
  switch (path.slice(path.lastIndexOf(".") + 1).toLowerCase()) {
    case "js": case "mjs": case "cjs": case "jsx":
      return javascript({ jsx: true });
    case "ts": case "mts": case "tsx":
      return javascript({ jsx: path.endsWith("x"), typescript: true });
    case "py":
      return python();
    case "go":
      return go();
    case "rs":
      return rust();
    case "c": case "h": case "cc": case "cpp": case "hpp":
      return cpp();
    case "java": case "kt":
      return java();
    case "json":
      return json();
    case "css": case "scss":
      return css();
    case "html": case "htm": case "vue": case "svelte":
      return html();
    case "md":
      return markdown();
    case "yaml": case "yml":
      return yaml();
  }
  return [];
}

// Comparing huge texts is cut short: the chunks are then larger than necessary, but
// never wrong.
const diffConfig = { scanLimit: 2000, timeout: 400 };

// control makes a chunk's button in the unified view. Its label differs from those of
// the buttons that decide.
function control(type: "reject" | "accept", action: (e: MouseEvent) => void, kept: () => void): HTMLElement {
  const b = document.createElement("button");
  b.textContent = type === "accept" ? "Keep" : "Undo";
  b.title = type === "accept" ? "Keep this change in the text; press Accept to decide" : "Undo this change";
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
  content: string;
  unified: boolean;
  readOnly: boolean;
  nonce: string;
  changed(text: string): void;
  // kept is called after a change was kept, with the original text as now shown.
  kept(original: string): void;
}

export class DiffView {
  readonly editor: EditorView;
  private merge?: MergeView;
  private quiet = false;
  private writing = new Compartment();

  constructor(options: ViewOptions) {
    const common: Extension[] = [
      EditorView.cspNonce.of(options.nonce),
      EditorState.lineSeparator.of("\n"),
      lineNumbers(), highlightSpecialChars(), drawSelection(), bracketMatching(),
      search({ top: true }), highlightSelectionMatches(), language(options.path), syntaxHighlighting(colours),
      EditorView.lineWrapping,
      keymap.of([...searchKeymap]),
    ];
    const editable: Extension[] = [
      ...common, this.writing.of(EditorState.readOnly.of(options.readOnly)), history(), highlightActiveLine(),
      EditorView.clipboardInputFilter.of((text) => text.replaceAll(/\r\n?/g, "\n")),
      keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ "aria-label": `Proposed text of ${options.path}, ${options.readOnly ? "read-only" : "editable"}` }),
      EditorView.updateListener.of((u) => {
        if (u.docChanged && !this.quiet) options.changed(this.text());
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
          unifiedMergeView({ original: options.original, mergeControls: options.readOnly ? false : (type, action) => control(type, action, kept), collapseUnchanged: fold, diffConfig }),
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
        b.title = "Undo this change";
        b.setAttribute("aria-label", "Undo this change");
        b.textContent = "→";
        // The merge view handles mousedown only; a click without one comes from a key.
        b.onclick = (e) => {
          if (e.detail === 0) b.dispatchEvent(new MouseEvent("mousedown", { bubbles: true, cancelable: true }));
        };
        return b;
      },
      collapseUnchanged: fold,
      diffConfig,
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

  next() {
    goToNextChunk(this.editor);
  }

  previous() {
    goToPreviousChunk(this.editor);
  }

  // first moves the cursor to the first change.
  first() {
    this.editor.focus();
    const chunk = getChunks(this.editor.state)?.chunks[0];
    if (!chunk) return;
    const at = Math.min(chunk.fromB, this.editor.state.doc.length);
    this.editor.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: "center" }) });
  }

  destroy() {
    if (this.merge) this.merge.destroy();
    else this.editor.destroy();
  }
}
