// The review page: a list of the diffs that wait, and the view of one.

import { type AcceptResult, type Diff, Door } from "./door";
import { forget, login, takeLink } from "./login";
import { Settling } from "./settle";
import { fromLF, toLF, usesCRLF } from "./text";
import { DiffView } from "./view";

const link = takeLink(); // first, so that nothing else can see it

const $ = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")!.content;

// An Item is a diff and what the user has made of it here.
interface Item {
  diff: Diff;
  crlf: boolean;
  text: string; // with LF where crlf
  unsent: boolean;
  deciding?: boolean; // Pollux has not answered yet
  timer?: number;
}

const items = new Map<string, Item>();
let current: Item | undefined;
let view: DiffView | undefined;
let clients: string[] = [];
let online = false;
let met = false; // it was online before
let shut = ""; // why the page may not connect
const narrow = matchMedia("(max-width: 900px)");
let unifiedWanted = localStorage.getItem("pollux-unified") === "1";

const say = (text: string) => {
  $("live").textContent = text;
};
const base = (path: string) => path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);
const dir = (path: string) => path.slice(0, path.length - base(path).length - 1);
const sessionKey = (id: string) => `pollux-${id}`;

const settling = new Settling(() => render());
const door = new Door({
  connected() {
    online = met = true;
    render();
    for (const item of items.values()) if (item.unsent) send(item);
  },
  disconnected(loggedOut) {
    online = false;
    met = true;
    if (loggedOut) {
      forget();
      shut = "This companion has ended, or the link was for another one. For a new link: pollux status --link";
      if (items.size) toast("error", `${shut}. What you edited is in the journal: pollux journal`);
    }
    render();
  },
  open(diff) {
    const crlf = usesCRLF(diff.proposed);
    const kept = sessionStorage.getItem(sessionKey(diff.id));
    const known = items.get(diff.id);
    const same = known && known.diff.original === diff.original && known.diff.state === diff.state;
    const item: Item = { diff, crlf, text: toLF(diff.content ?? diff.proposed, crlf), unsent: false };
    if (known?.unsent) item.text = known.text;
    else if (kept !== null) item.text = kept;
    const mine = fromLF(item.text, crlf) !== (diff.content ?? diff.proposed);
    items.set(diff.id, item);
    if (mine) send(item);
    if (!known) say(`${diff.client} proposes a change to ${base(diff.path)}`);
    if (current === known && same && known.text === item.text) current = item;
    else if (!current || current === known) show(item, !known);
    render();
  },
  close(id, reason) {
    const item = items.get(id);
    if (!item) return undefined;
    clearTimeout(item.timer);
    items.delete(id);
    sessionStorage.removeItem(sessionKey(id));
    const what = { accepted: "was accepted", rejected: "was rejected", closed: "was answered in the terminal", superseded: "was proposed anew", saved: "was saved", failed: "could not be shown" }[reason] ?? "is closed";
    toast("info", `The change to ${base(item.diff.path)} ${what}.`);
    if (current === item) show([...items.values()][0], true);
    render();
    return fromLF(item.text, item.crlf);
  },
  changed(id, content, state) {
    const item = items.get(id);
    if (!item) return;
    if (state && state !== item.diff.state) {
      item.diff.state = state as Diff["state"];
      if (current === item) settling.restart(); // the buttons do something else
    }
    if (content !== undefined && !item.unsent) {
      item.text = toLF(content, item.crlf);
      if (current === item) {
        view?.setText(item.text);
        settling.restart();
      }
    }
    render();
  },
  clients(names) {
    clients = names;
    render();
  },
  message: toast,
});

// edited is called at each keystroke; the text is sent when the user pauses.
function edited(item: Item, text: string) {
  item.text = text;
  item.unsent = true;
  clearTimeout(item.timer);
  item.timer = window.setTimeout(() => send(item), 150);
  render();
}

async function send(item: Item) {
  clearTimeout(item.timer);
  const text = item.text;
  try {
    await door.notify("diff/edit", { id: item.diff.id, content: fromLF(text, item.crlf) });
    if (item.text === text) {
      item.unsent = false;
      sessionStorage.removeItem(sessionKey(item.diff.id));
    }
  } catch {
    item.unsent = true; // sent again when the connection is back
  }
}

// A page that goes keeps what it could not send.
addEventListener("pagehide", () => {
  for (const item of items.values()) {
    if (!item.unsent) continue;
    try {
      sessionStorage.setItem(sessionKey(item.diff.id), item.text);
    } catch {
      // too large; the companion has all but the last moment
    }
  }
});

function unified(): boolean {
  return narrow.matches || unifiedWanted || !(current?.diff.exists ?? true);
}

function show(item: Item | undefined, focus: boolean) {
  current = item;
  $("conflict").hidden = true;
  draw(focus);
  settling.restart();
}

// draw makes the view of the current diff.
function draw(focus: boolean) {
  const item = current;
  view?.destroy();
  view = undefined;
  $("view").replaceChildren();
  document.body.classList.toggle("empty", !item); // what is not displayed takes no focus
  if (!item) return;
  view = new DiffView({
    parent: $("view"), path: item.diff.path, original: toLF(item.diff.original, item.crlf), content: item.text,
    unified: unified(), nonce, changed: (text) => edited(item, text),
  });
  if (focus) view.first();
}

// entry makes a diff's place in the list. It stays the same element as long as
// the diff waits: one that is replaced loses the focus, and a click half made.
function entry(diff: Diff): HTMLElement {
  const b = document.createElement("button");
  b.className = "item";
  b.dataset.id = diff.id;
  b.title = diff.path;
  for (const [name, text] of [
    ["name", base(diff.path)],
    ["tags", ""],
    ["where", `\u200e${dir(diff.path)}`], // cut at its start, by its direction
  ]) {
    const span = document.createElement("span");
    span.className = name;
    span.textContent = text;
    b.append(span);
  }
  b.onclick = () => {
    show(items.get(diff.id), true);
    render();
  };
  return b;
}

function render() {
  $("status").textContent = shut ? "not connected" : online ? (clients.length ? `${clients.length} connected` : "no CLI connected") : met ? "reconnecting…" : "connecting…";
  $("status").title = clients.join("\n");
  $("status").dataset.state = online ? (clients.length ? "ok" : "idle") : "off";
  document.title = items.size ? `(${items.size}) Pollux review` : "Pollux review";

  const list = $("list");
  for (const b of [...list.children]) if (!items.has((b as HTMLElement).dataset.id!)) b.remove();
  for (const item of items.values()) {
    const b = list.querySelector<HTMLElement>(`[data-id="${item.diff.id}"]`) ?? list.appendChild(entry(item.diff));
    b.setAttribute("aria-current", String(item === current));
    b.querySelector(".tags")!.textContent = [
      item.diff.exists ? "" : "new file",
      item.diff.state === "orphaned" ? "CLI ended" : "",
      fromLF(item.text, item.crlf) === item.diff.proposed ? "" : "edited",
    ].filter(Boolean).join(", ");
  }

  const orphaned = current?.diff.state === "orphaned";
  $("accept").firstElementChild!.textContent = orphaned ? "Save to file" : "Accept";
  $("reject").firstElementChild!.textContent = orphaned ? "Discard" : "Reject";
  $("orphaned").hidden = !orphaned;
  $("path").textContent = current ? base(current.diff.path) : "";
  $("what").title = current ? current.diff.path : "";
  $("from").textContent = current ? `from ${current.diff.client}` : "";
  $("mode").setAttribute("aria-pressed", String(unified()));
  // Not disabled: the focus has to stay.
  const off = !online || !current || current.deciding || !settling.settled();
  for (const id of ["accept", "reject", "overwrite"]) $(id).setAttribute("aria-disabled", String(off));
  $("none").textContent = shut ? shut
    : !online && !met ? "Connecting to Pollux…"
    : !online ? "Pollux has ended, or cannot be reached. What you edited is kept: pollux journal lists it."
    : clients.length ? "Nothing waits for review. Changes that Gemini CLI proposes appear here."
    : "No CLI is connected. In Gemini CLI, type /ide enable.";
}

// decide handles a key, or one of several clicks, that decides on the current diff.
async function decide(method: "accept" | "reject", clicks: number, overwrite?: string) {
  const item = current;
  if (!item) return;
  const may = settling.decides(clicks);
  if (item.deciding) return;
  if (!online) return hint("Pollux is not connected. Decide when it is.");
  if (!may) return hint("This change has just appeared. Look at it, then decide.");
  hint("");
  $("conflict").hidden = true;
  item.deciding = true;
  render();
  const orphaned = item.diff.state === "orphaned";
  const text = item.text;
  try {
    if (method === "reject") {
      await send(item); // the journal has what is thrown away
      await door.call("diff/reject", { id: item.diff.id });
      return;
    }
    const res = await door.call<AcceptResult>(orphaned ? "diff/save" : "diff/accept", {
      id: item.diff.id, content: fromLF(text, item.crlf), overwrite,
    });
    if (res.status === "empty") toast("warning", res.message ?? "");
    if (res.status === "conflict") askConflict(item, res);
  } catch (err) {
    toast("error", (err as Error).message);
  } finally {
    item.deciding = false;
    render();
  }
}

// hint says beside the buttons why nothing happened.
function hint(text: string) {
  const p = $("hint");
  p.textContent = text;
  clearTimeout(hintTimer);
  if (text) hintTimer = window.setTimeout(() => hint(""), 8000);
}
let hintTimer = 0;

function askConflict(item: Item, res: AcceptResult) {
  const text = `${base(item.diff.path)} has changed on disk since the change was proposed, so it was not written. Compare the change with the file as it is now, or overwrite the file.`;
  if (current !== item) {
    toast("warning", text);
    return;
  }
  $("conflict-text").textContent = text;
  $("conflict").hidden = false;
  $("overwrite").onclick = (e) => decide("accept", e.detail, res.version);
  $("compare").onclick = () => {
    item.diff.original = res.disk ?? "";
    show(item, true);
    render();
  };
  settling.restart(); // Overwrite has just appeared
  $("compare").focus();
  say(text);
}

function toast(level: string, text: string) {
  const p = document.createElement("p");
  p.className = `toast ${level}`;
  p.textContent = text;
  const close = document.createElement("button");
  close.textContent = "×";
  close.setAttribute("aria-label", "Dismiss");
  close.onclick = () => p.remove();
  p.append(close);
  $("toasts").append(p);
  if (level === "info") setTimeout(() => p.remove(), 8000);
}

function other(step: number) {
  const all = [...items.values()];
  if (all.length < 2 || !current) return;
  show(all[(all.indexOf(current) + step + all.length) % all.length], true);
  render();
}

function toggleMode() {
  unifiedWanted = !unifiedWanted;
  localStorage.setItem("pollux-unified", unifiedWanted ? "1" : "0");
  draw(true);
  render();
}

const actions: Record<string, (e?: MouseEvent) => void> = {
  accept: (e) => decide("accept", e?.detail ?? 0),
  reject: (e) => decide("reject", e?.detail ?? 0),
  next: () => view?.next(),
  previous: () => view?.previous(),
  mode: toggleMode,
  reset: () => current && view?.replace(toLF(current.diff.proposed, current.crlf)),
  help: () => {
    const d = $<HTMLDialogElement>("keys");
    if (d.open) d.close();
    else d.showModal();
  },
};
for (const [id, run] of Object.entries(actions)) $(id).onclick = run;
$("keys-close").onclick = () => actions.help();

addEventListener("keydown", (e) => {
  const mod = e.ctrlKey || e.metaKey;
  const key = [mod && "Mod", e.altKey && "Alt", e.shiftKey && "Shift", e.code].filter(Boolean).join("+");
  const bound: Record<string, () => void> = {
    "Mod+Enter": actions.accept,
    "Mod+Shift+Backspace": actions.reject,
    "Alt+ArrowDown": actions.next,
    F8: actions.next,
    "Alt+ArrowUp": actions.previous,
    "Shift+F8": actions.previous,
    "Alt+KeyU": actions.mode,
    "Alt+KeyN": () => other(1),
    "Alt+KeyP": () => other(-1),
    F1: actions.help,
  };
  const run = bound[key];
  if (!run || ($<HTMLDialogElement>("keys").open && key !== "F1")) return;
  e.preventDefault();
  e.stopPropagation();
  run();
}, { capture: true });

narrow.addEventListener("change", () => {
  if (current) draw(false);
  render();
});
render();
function enter(link: string) {
  login(link).then((secret) => {
    shut = "";
    render();
    door.open(secret);
  }, (err: Error) => {
    if (online) return;
    shut = err.message;
    render();
  });
}
// A link that is opened in this tab changes only the fragment.
addEventListener("hashchange", () => location.hash && enter(takeLink()));
enter(link);
