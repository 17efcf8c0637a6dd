// The review page: a list of pending diffs, and a view of one.

import { type AcceptResult, type Agent, agentName, Client, type Diff, type Notice, type Outside, retryDelay } from "./client";
import { forget, login, takeLink, Unreachable } from "./login";
import { notify, withdraw } from "./notify";
import { Settling } from "./settle";
import { fromLF, toLF, usesCRLF } from "./text";
import "./theme";
import { DiffView } from "./view";

const opened = takeLink(); // first, before other code can see it

const $ = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;
const nonce = document.querySelector<HTMLMetaElement>("meta[name=nonce]")!.content;

// An Item is a diff with the user's edits on this page.
interface Item {
  diff: Diff;
  crlf: boolean;
  text: string; // with LF if crlf is set
  original?: string; // includes the changes that the user chose to keep, if any
  unsent: boolean;
  shared: string[]; // the last text that Pollux has, then the texts being sent
  deciding?: boolean; // Pollux has not answered yet
  sent?: string; // the text that the user accepted or saved
  stale?: "disk" | "deleted"; // the file has changed, or was deleted, since
  timer?: number;
}

const items = new Map<string, Item>();
let current: Item | undefined;
let view: DiffView | undefined;
let drawn: Item | undefined; // what the view shows
let agents: Agent[] = [];
let outside: Outside = { files: [] };
let online = false;
let met = false; // the page was online before
let ended = false; // the page has tried to connect again for a long time
let shut = ""; // why the page must not connect
const narrow = matchMedia("(max-width: 900px)");
const phone = matchMedia("(max-width: 449px)");
let unifiedWanted = localStorage.getItem("pollux-unified") === "1";

const say = (text: string) => {
  $("live").textContent = text;
};
const base = (path: string) => path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1);
const dir = (path: string) => path.slice(0, Math.max(0, path.length - base(path).length - 1));

// The workspace's directories. The page shows paths relative to them.
let roots: string[] = [];

// What to do while no agent is connected, unless the companion says more.
const noAgent = "No agent is connected. In Gemini CLI, type /ide enable and restart it; in Claude Code and Codex CLI, type /ide";
let unconnected = noAgent;

// What became of the last changes, the latest first.
let last: string[] = [];
const mostLast = 5;

// Set if the journal keeps the texts when Pollux has ended. The demo's is deleted.
let keepsTexts = false;

// relative returns a path without the workspace's directory. If there are several, it
// keeps their last part.
function relative(path: string): string {
  const root = roots.filter((r) => path.startsWith(r) && /[\\/]/.test(path[r.length] ?? "")).sort((a, b) => b.length - a.length)[0];
  if (root === undefined) return path;
  return path.slice(roots.length > 1 ? root.length - base(root).length : root.length + 1);
}

// Unsent texts survive a reload.
const storeKey = "pollux-text-";
interface Stored {
  path: string;
  text: string;
  shared?: string[]; // as in Item
  why?: string; // why it was not used
}

function store(id: string, text: Stored) {
  try {
    sessionStorage.setItem(storeKey + id, JSON.stringify(text));
  } catch {
    // too large; the companion has all but the latest edits
  }
}

function stored(id: string): Stored | undefined {
  const value = sessionStorage.getItem(storeKey + id);
  return value === null ? undefined : JSON.parse(value);
}

const unstore = (id: string) => sessionStorage.removeItem(storeKey + id);

const settling = new Settling(() => render());
const client = new Client({
  connected: () => reconcile(),
  disconnected(loggedOut, away) {
    online = false;
    met = true;
    ended = away;
    if (loggedOut) {
      forget();
      shut = "This companion has ended, or the link was for another one. To open the page of a running one: pollux open";
      if (items.size) message("error", `${shut}${keepsTexts ? ". What you edited is in the journal: pollux journal" : ""}`);
    }
    render();
  },
  open(diff) {
    const crlf = usesCRLF(diff.proposed);
    const content = toLF(diff.content ?? diff.proposed, crlf);
    const known = items.get(diff.id);
    let old = stored(diff.id);
    if (old && !known?.unsent && old.text !== content && !old.shared?.includes(content)) {
      strand(diff.id, { why: `${base(diff.path)} was edited elsewhere after your last edits here.`, ...old });
      old = undefined;
    }
    const typed = known?.unsent ? known.text : old?.text;
    const late = diff.state === "accepted"; // too late for unsent edits
    const text = late ? content : typed ?? content;
    // After a reconnect every diff arrives again; unchanged ones are not redrawn.
    const same = known && known.text === text && known.diff.state === diff.state && known.diff.original === diff.original;
    const item: Item = known ?? { diff, crlf, text, unsent: false, shared: [] };
    if (!same) item.original = undefined;
    clearTimeout(item.timer);
    Object.assign(item, { diff, crlf, text, unsent: false, shared: [content], stale: undefined });
    items.set(diff.id, item);
    if (typed !== undefined && typed !== content) {
      if (late) strand(diff.id, { path: diff.path, text: typed });
      else send(item);
    }
    if (!known && diff.state !== "outside") {
      const text = `${agentName(diff)} proposes a change to ${base(diff.path)}`;
      say(text);
      if (!late) notify(diff.id, text);
      dropMessages("path", diff.path);
    }
    if (!current || diff.state === "outside" || (current === item && !same)) show(item, !known);
    render();
  },
  close(id, reason) {
    const item = items.get(id);
    dropMessages("diff", id);
    if (!item) return undefined;
    clearTimeout(item.timer);
    items.delete(id);
    withdraw(id);
    const name = base(item.diff.path);
    const said: Record<string, string> = {
      accepted: `${name} was written with the accepted text.`,
      rejected: item.diff.state === "orphaned" ? `The text for ${name} was discarded.` : `The change to ${name} was rejected.`,
      closed: `The change to ${name} was answered in the terminal.`,
      superseded: `The change to ${name} was replaced by a newer one.`,
      saved: `${name} was saved.`,
      kept: `${name} stays as it is.`,
      ended: `The change to ${name} was not decided: Pollux has ended.`,
      failed: `The change to ${name} could not be shown.`,
    };
    dropMessages("path", item.diff.path);
    const text = said[reason] ?? `The change to ${name} is closed.`;
    if (reason !== "unwritten") { // a warning follows
      message("info", text);
      last = [text, ...last].slice(0, mostLast);
    }
    if (tooLate(item) && ["accepted", "saved"].includes(reason)) strand(id, { path: item.diff.path, text: item.text });
    else if (!stranded.has(id)) unstore(id);
    if (current === item) show(following(), true);
    render();
    return fromLF(item.text, item.crlf);
  },
  changed(id, content, state) {
    const item = items.get(id);
    if (!item) return;
    if (state && state !== item.diff.state) {
      item.diff.state = state as Diff["state"];
      if (state === "accepted") {
        // Edits made now, or elsewhere, are too late.
        if (tooLate(item)) strand(id, { path: item.diff.path, text: item.text });
        clearTimeout(item.timer);
        item.unsent = false;
        item.text = item.sent ?? item.text;
        if (current === item) {
          view?.setText(item.text);
          view?.freeze();
        }
      }
      if (current === item) settling.restart(); // the buttons now do something else
    }
    if (content !== undefined) item.shared = [toLF(content, item.crlf)];
    if (content !== undefined && !item.unsent) {
      item.text = toLF(content, item.crlf);
      if (current === item) {
        view?.setText(item.text);
        settling.restart();
      }
    }
    render();
  },
  clients(all) {
    agents = all;
    render();
  },
  outside(list) {
    outside = list;
    render();
  },
  began() {
    outside = { files: [] };
    for (const p of document.querySelectorAll<HTMLElement>("[data-diff]")) p.remove();
  },
  message: told,
});

// edited records the text after each keystroke. It is sent when the user pauses.
function edited(item: Item, text: string) {
  item.text = text;
  item.unsent = true;
  clearTimeout(item.timer);
  item.timer = window.setTimeout(() => {
    if (!item.deciding) send(item); // otherwise it is sent when Pollux has answered
  }, 150);
  render();
}

// tooLate reports whether the user has made edits that a decision does not contain.
function tooLate(item: Item): boolean {
  return item.unsent && item.text !== item.sent;
}

async function send(item: Item) {
  clearTimeout(item.timer);
  const text = item.text;
  item.shared = [item.shared[0], ...item.shared.slice(1).slice(-1), text];
  try {
    await client.notify("diff/edit", { id: item.diff.id, content: fromLF(text, item.crlf) });
    item.shared = [text, ...item.shared.slice(item.shared.lastIndexOf(text) + 1)];
    if (item.text === text) {
      item.unsent = false;
      if (!stranded.has(item.diff.id)) unstore(item.diff.id);
    }
  } catch {
    item.unsent = true; // sent again when the connection is back
  }
}

// reconcile updates the page after it has connected: it sends unsent edits, then drops
// the diffs that were answered meanwhile.
async function reconcile() {
  client.call<{ roots?: string[]; journal?: boolean; unconnected?: string }>("status", {}).then((status) => {
    roots = status.roots ?? [];
    unconnected = status.unconnected ?? noAgent;
    keepsTexts = status.journal ?? false;
    for (const item of items.values()) label(item.diff);
    render();
  }, () => {}); // the paths stay absolute
  const before = [...items.values()];
  const unsent = new Set(before.filter((item) => item.unsent).map((item) => item.diff.id));
  await Promise.all(before.filter((item) => item.unsent).map(send));
  const { diffs } = await client.call<{ diffs: Diff[] }>("diff/list", {});
  const there = new Set(diffs.map((d) => d.id));
  for (const item of before) {
    const { diff } = item;
    if (!items.has(diff.id) || there.has(diff.id)) continue;
    clearTimeout(item.timer);
    items.delete(diff.id);
    withdraw(diff.id);
    if (unsent.has(diff.id) || item.unsent) strand(diff.id, { path: diff.path, text: item.text });
    else message("info", `The change to ${base(diff.path)} was answered while this page was not connected.`);
  }
  for (const key of Object.keys(sessionStorage)) {
    const id = key.slice(storeKey.length);
    if (key.startsWith(storeKey) && !there.has(id) && !items.has(id)) strand(id, stored(id)!);
  }
  if (current && !items.has(current.diff.id)) show(following(), true);
  online = met = true;
  ended = false;
  render();
}

// strand shows a text that came too late for its diff, until the user dismisses it.
const stranded = new Set<string>();
function strand(id: string, { path, text: typed, why }: Stored) {
  why ??= `The change to ${base(path)} was answered before your last edits reached Pollux.`;
  store(id, { path, text: typed, why });
  if (stranded.has(id)) return;
  stranded.add(id);
  const text = document.createElement("textarea");
  text.readOnly = true;
  text.value = typed;
  text.setAttribute("aria-label", `Your text of ${base(path)}`);
  message("warning", `${why} Copy what you need of your text:`, {
    more: text,
    dismissed() {
      stranded.delete(id);
      unstore(id);
    },
  });
}

// following returns the item to show when the current diff has ended.
function following(): Item | undefined {
  const all = [...items.values()];
  return all.find((item) => item.diff.state !== "accepted") ?? all[0];
}

// Before the page unloads, it stores the unsent texts.
addEventListener("pagehide", () => {
  for (const item of items.values()) {
    if (item.unsent) store(item.diff.id, { path: item.diff.path, text: item.text, shared: item.shared });
  }
});

// alone returns why there is no view side by side, or nothing.
function alone(): string {
  if (current && !current.diff.exists) return "There is no text on disk to show beside this one.";
  return narrow.matches ? "This window is too narrow to show the texts side by side." : "";
}

const unified = () => unifiedWanted || alone() !== "";

function show(item: Item | undefined, focus: boolean) {
  current = item;
  $("conflict").hidden = true;
  draw(focus);
  settling.restart();
  if (item?.diff.state === "orphaned") dropMessages("diff", item.diff.id); // the page says it above the text
  reveal();
}

// reveal scrolls the list to the current diff.
function reveal() {
  if (current) document.querySelector(`[data-id="${current.diff.id}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
addEventListener("resize", reveal);

// draw creates the view of the current diff. The cursor stays where it was.
function draw(focus: boolean) {
  const item = current;
  const cursor = drawn === item ? view?.cursor() : undefined;
  drawn = item;
  view?.destroy();
  view = undefined;
  $("view").replaceChildren();
  document.body.classList.toggle("empty", !item); // hidden elements take no focus
  if (!item) return;
  view = new DiffView({
    parent: $("view"), path: item.diff.path, original: item.original ?? toLF(item.diff.original, item.crlf),
    proposed: toLF(item.diff.proposed, item.crlf), content: item.text,
    unified: unified(), readOnly: Boolean(item.diff.readOnly), nonce, changed: (text) => edited(item, text),
    kept: (original) => {
      item.original = original;
      render();
    },
    moved: () => render(),
    left: () => $("view").focus(),
  });
  if (item.diff.state === "accepted") view.freeze();
  if (cursor === undefined) view.first();
  else view.moveTo(cursor);
  if (focus) $("view").focus({ preventScroll: true }); // not the text: a key that was meant for something else must not edit it
}

// inOrder returns a text for an element that is written from right to left, so that the start
// of its text is cut. The marks keep the parts in order.
const inOrder = (text: string) => text && `\u200e${text}\u200e`;

// folder returns the text for a file's folder, empty for that of the workspace.
const folder = (path: string) => inOrder(dir(relative(path)));

// label shows the folder of a diff again.
function label(diff: Diff) {
  const where = document.querySelector(`[data-id="${diff.id}"] .where`);
  if (where) where.textContent = folder(diff.path);
}

// entry creates a diff's button in the list. The element stays the same as long as the
// diff is pending: a replaced element would lose the focus, and a click in progress.
function entry(diff: Diff): HTMLElement {
  const b = document.createElement("button");
  b.className = "item";
  b.dataset.id = diff.id;
  b.title = diff.path;
  for (const [name, text] of [
    ["name", base(diff.path)],
    ["tags", ""],
    ["where", folder(diff.path)],
    ["agent", agentName(diff)],
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
  $("status").textContent = shut ? "not connected" : online ? (agents.length ? `${agents.length} connected` : "no agent connected")
    : ended ? "Pollux has ended or cannot be reached" : met ? "reconnecting…" : "connecting…";
  $("status").title = agents.map((a) => a.label).join("\n");
  $("status").dataset.state = online ? (agents.length ? "ok" : "idle") : ended ? "ended" : "off";
  const waiting = [...items.values()].filter((item) => item.diff.state === "open" || item.diff.state === "orphaned").length;
  document.title = [waiting ? `(${waiting})` : "", current ? `${base(current.diff.path)} –` : "", "Pollux review", ended ? "(ended)" : ""].filter(Boolean).join(" ");
  $<HTMLLinkElement & HTMLElement>("icon").href = icon(waiting > 0);

  renderList();

  const there = current?.diff.state === "outside";
  const orphaned = current?.diff.state === "orphaned";
  $("accept").firstElementChild!.textContent = orphaned || there ? "Save to file" : "Accept";
  $("reject").firstElementChild!.textContent = there ? "Leave it" : orphaned ? "Discard" : "Reject";
  $("there").hidden = !there;
  $("there").textContent = current && deleted(current.diff) ? "This file was deleted outside Pollux. To restore it: Undo, then Save to file."
    : "This file changed outside Pollux: it has this text already. Undo hunks with u, then save, or leave the file as it is.";
  const accepted = current?.diff.state === "accepted";
  const fixed = accepted ? undefined : current?.diff.readOnly;
  $("reset").hidden = Boolean(fixed);
  $("reset").setAttribute("aria-disabled", String(!current || accepted || current.text === toLF(current.diff.proposed, current.crlf)));
  $("fixed").hidden = !fixed || orphaned;
  $("fixed").textContent = fixed && !orphaned ? `This text is read-only. ${fixed}.` : "";
  $("orphaned").hidden = !orphaned;
  $("accepted").hidden = !accepted;
  $("accepted").textContent = accepted ? `Accepted. Waiting for the agent to write ${base(current!.diff.path)}.` : "";
  $("view").classList.toggle("frozen", accepted);
  $("view").classList.toggle("new-file", Boolean(current && !current.diff.exists));
  $("kept").hidden = accepted || current?.original === undefined;
  $("kept-text").textContent = `Not decided yet: press ${orphaned || there ? "Save to file" : "Accept"}. Changes that you kept are hidden.`;
  $("path").textContent = current ? inOrder(roots.length ? relative(current.diff.path) : base(current.diff.path)) : "";
  const { at, of } = view?.position() ?? { at: 0, of: 0 };
  $("position").textContent = !of ? "no difference" : at ? `hunk ${at} of ${of}` : count(of, "hunk");
  $("caption-old").textContent = there ? "Before" : current?.diff.exists ? "On disk" : "New file";
  $("caption-old").hidden = unified();
  $("yours").hidden = !current || current.text === toLF(current.diff.proposed, current.crlf);
  $("caption-text").textContent = there ? "Text on disk now: click it, or press e, to edit" : accepted ? "Accepted text" : fixed ? "Proposed text, read-only" : "Proposed text: click it, or press e, to edit";
  $("what").title = current ? current.diff.path : "";
  $("from").textContent = !current ? "" : there ? agentName(current.diff) : `from ${agentName(current.diff)}`;
  $("from").title = current ? current.diff.client : "";
  $("mode").setAttribute("aria-pressed", String(unified()));
  $("mode").hidden = alone() !== "";
  // Not disabled: the button must keep the focus.
  const off = !online || !current || accepted || current.deciding || !settling.settled();
  for (const id of ["accept", "reject", "overwrite"]) $(id).setAttribute("aria-disabled", String(off));
  renderOutside();
  const silent = agents.flatMap((a) => a.silent ?? []);
  $("none").textContent = shut ? shut
    : !online && !met ? "Connecting to Pollux…"
    : !online ? `Pollux has ended or cannot be reached.${keepsTexts ? " Your edits are kept: pollux journal lists them." : ""}`
    : agents.length ? [nothing(), ...silent, ...recent()].join("\n\n")
    : `${unconnected}.`;
}

// nothing says that no change is pending, and whose changes appear here.
function nothing(): string {
  const limited = new Set(agents.filter((a) => a.limits).map((a) => `${a.name} has ${a.limits}.`));
  const some = agents.some((a) => !a.limits) ? " Changes that an agent proposes appear here." : "";
  return [`No pending changes.${some}`, ...limited].join("\n");
}

// From manyItems on, the list is a tree of folders.
const manyItems = 5;

// A Row is a row of the list: a folder, or a diff in it.
interface Row {
  depth: number;
  folder?: string;
  item?: Item;
}

interface Leaf {
  folders: string[];
  item: Item;
}

// branches returns the rows of a tree. A folder that holds only another one shares its row.
function branches(leaves: Leaf[], depth: number): Row[] {
  const groups = new Map<string | undefined, Leaf[]>();
  for (const { folders: [first, ...folders], item } of leaves) {
    groups.set(first, [...groups.get(first) ?? [], { folders, item }]);
  }
  return [...groups].flatMap(([folder, inside]) => {
    if (folder === undefined) return inside.map(({ item }) => ({ depth, item }));
    for (let [next] = inside[0].folders; next !== undefined && inside.every(({ folders }) => folders[0] === next); [next] = inside[0].folders) {
      folder += `/${next}`;
      inside = inside.map(({ folders, item }) => ({ folders: folders.slice(1), item }));
    }
    return [{ depth, folder: folder || "/" }, ...branches(inside, depth + 1)];
  });
}

let listed = ""; // what the list shows
let tree = false; // it stays one until one diff is left: rows that move are hard to follow

function renderList() {
  const all = [...items.values()];
  tree = all.length >= manyItems || (tree && all.length > 1);
  const leaves = all.map((item) => ({ folders: relative(item.diff.path).split(/[\\/]/).slice(0, -1), item }));
  const rows: Row[] = tree ? branches(leaves, 0) : all.map((item) => ({ depth: 0, item }));
  const list = $("list");
  const shows = JSON.stringify(rows.map(({ depth, folder, item }) => [depth, folder, item?.diff.id]));
  if (shows !== listed) arrange(list, rows);
  listed = shows;
  for (const item of all) {
    const b = list.querySelector<HTMLElement>(`[data-id="${item.diff.id}"]`)!;
    b.setAttribute("aria-current", String(item === current));
    renderTags(b.querySelector(".tags")!, item);
  }
}

// arrange puts the rows into the list. A diff's button that is in its place already stays: a
// click may be in progress.
function arrange(list: HTMLElement, rows: Row[]) {
  const focused = document.activeElement as HTMLElement;
  list.classList.toggle("tree", tree);
  for (const e of [...list.children] as HTMLElement[]) if (!items.has(e.dataset.id ?? "")) e.remove();
  rows.forEach(({ depth, folder, item }, i) => {
    const e = item ? list.querySelector<HTMLElement>(`[data-id="${item.diff.id}"]`) ?? entry(item.diff) : element("div", folder!);
    if (!item) e.className = "folder";
    e.style.setProperty("--depth", String(depth));
    if (list.children[i] !== e) list.insertBefore(e, list.children[i] ?? null);
  });
  if (list.contains(focused)) focused.focus({ preventScroll: true });
}

// recent returns what became of the last changes, and how to see or restore them.
const recent = () => last.length ? [last.join("\n") + (keepsTexts ? "\nTo see or restore a change: pollux journal" : "")] : [];

// deleted reports whether a diff is that of a file deleted outside Pollux.
const deleted = (diff: Diff) => diff.state === "outside" && outside.files.some((f) => f.path === diff.path && f.change === "deleted");

// renderTags shows the states of a diff as words, each in its colour.
function renderTags(box: Element, item: Item) {
  const { diff } = item;
  const there = diff.state === "outside";
  const gone = deleted(diff);
  const words: [string, boolean, string][] = [
    ["new", !diff.exists && !gone, "new file"],
    ["deleted", item.stale === "deleted" || gone, "deleted"],
    ["disk", item.stale === "disk" || (there && diff.exists && !gone), "changed on disk"],
    ["ended", diff.state === "orphaned", "disconnected"],
    ["done", diff.state === "accepted", "accepted"],
    ["edited", fromLF(item.text, item.crlf) !== diff.proposed, "edited"],
  ];
  const tags = words.filter(([, on]) => on).flatMap(([state, , text]) => {
    const tag = element("span", text);
    tag.className = state;
    return [tag, " "];
  });
  const text = tags.map((tag) => (typeof tag === "string" ? tag : tag.textContent)).join("");
  if (box.textContent !== text) box.replaceChildren(...tags); // a replaced element would lose a click in progress
}

// renderOutside shows the list of changes outside Pollux.
function renderOutside() {
  const box = $<HTMLDetailsElement>("outside");
  box.hidden = !online || outside.files.length === 0;
  box.querySelector("summary")!.textContent = `${count(outside.files.length, "file")}${outside.more ? " or more" : ""} changed outside Pollux`;
  $("outside-manual").textContent = outside.manual ? `To review an agent's next change, ${outside.manual}.` : "";
  $("outside-files").replaceChildren(...outside.files.map(({ path, change, notice }) => {
    const b = element("button", `${roots.length ? relative(path) : path} (${notice ? `${change}; it cannot be shown: ${notice}` : change})`) as HTMLButtonElement;
    b.disabled = Boolean(notice);
    b.onclick = () => {
      if (phone.matches) box.open = false; // the change needs the room
      ask("outside/open", { path });
    };
    return b;
  }));
}

// ask calls a method and shows its error.
const ask = (method: string, params: unknown) => client.call(method, params).catch((err: Error) => message("error", err.message));

const appeared = "This change has just appeared. Look at it, then decide.";

// decide handles a key or click that decides on the current diff. clicks is the click
// count of a mouse event, or 0 for a key.
async function decide(method: "accept" | "reject", clicks: number, overwrite?: string) {
  const item = current;
  if (!item) return;
  const may = settling.decides(clicks);
  if (item.deciding || item.diff.state === "accepted") return;
  if (!online) return hint("Pollux is not connected. Wait until it is, then decide.");
  if (!may) return hint(appeared);
  hint("");
  dropMessages("path", item.diff.path);
  $("conflict").hidden = true;
  item.deciding = true;
  render();
  const orphaned = item.diff.state === "orphaned" || item.diff.state === "outside";
  let taken = false;
  try {
    if (method === "reject") {
      await send(item); // so that the journal has the discarded text
      await client.call("diff/reject", { id: item.diff.id });
      taken = true;
      return;
    }
    item.sent = item.text;
    const res = await client.call<AcceptResult>(orphaned ? "diff/save" : "diff/accept", {
      id: item.diff.id, content: fromLF(item.sent, item.crlf), overwrite,
    });
    taken = res.status === "accepted";
    if (res.status === "empty") message("warning", res.message ?? "", { path: item.diff.path });
    if (res.status === "conflict") askConflict(item, res);
  } catch (err) {
    message("error", (err as Error).message, { path: item.diff.path });
  } finally {
    item.deciding = false;
    if (!taken) {
      item.sent = undefined;
      if (item.unsent && items.get(item.diff.id) === item) send(item);
    }
    render();
  }
}

// hint shows next to the buttons why nothing happened.
function hint(text: string) {
  const p = $("hint");
  p.textContent = text;
  clearTimeout(hintTimer);
  if (text) hintTimer = window.setTimeout(() => hint(""), 5000);
}
let hintTimer = 0;

function askConflict(item: Item, res: AcceptResult) {
  item.stale = res.deleted ? "deleted" : "disk";
  const text = `${res.message} It was not written. Compare the change with the file as it is now, or overwrite the file.`;
  if (current !== item) {
    message("warning", text, { path: item.diff.path });
    return;
  }
  $("conflict-text").textContent = text;
  $("conflict").hidden = false;
  $("overwrite").onclick = (e) => decide("accept", e.detail, res.version);
  $("compare").onclick = () => {
    item.diff.original = res.disk ?? "";
    item.diff.exists = !res.deleted;
    item.stale = undefined;
    item.original = undefined;
    show(item, true);
    render();
  };
  settling.restart(); // Overwrite has just appeared
  $("compare").focus();
  say(text);
}

// The corner has room for mostToasts messages.
const mostToasts = 3;

// messageDelays is how long messages stay, in milliseconds, unless they are about a diff or
// hold a text to copy.
const messageDelays: Record<string, number> = { info: 8000, warning: 300_000, error: 300_000 };

interface MessageOptions {
  path?: string; // the file that it is about
  diff?: string; // the diff that it is about
  more?: HTMLElement;
  dismissed?: () => void;
}

// message shows a message: information in a corner, warnings and errors above the text. It
// replaces the warnings and errors about the same file or diff.
function message(level: string, text: string, { path, diff, more, dismissed }: MessageOptions = {}) {
  if (path) dropMessages("path", path);
  if (diff) dropMessages("diff", diff);
  const p = document.createElement("div");
  p.className = `message ${level}`;
  p.append(element("span", text));
  if (path) p.dataset.path = path;
  if (diff) p.dataset.diff = diff;
  const close = element("button", "×");
  close.setAttribute("aria-label", "Dismiss");
  close.onclick = () => {
    p.remove();
    dismissed?.();
  };
  if (more) p.append(more);
  p.append(close);
  if (!more && !diff) setTimeout(() => p.remove(), messageDelays[level] ?? messageDelays.error);
  $(level === "info" ? "toasts" : "messages").append(p);
  if ($("toasts").children.length > mostToasts) $("toasts").firstElementChild!.remove();
}

function element(tag: string, text: string): HTMLElement {
  const e = document.createElement(tag);
  e.textContent = text;
  return e;
}

// dropMessages removes the warnings and errors about a file or a diff, which are out of
// date. Other messages go away soon.
function dropMessages(about: "path" | "diff", name: string) {
  for (const p of $("messages").querySelectorAll<HTMLElement>(".message")) if (p.dataset[about] === name) p.remove();
}

// told shows a message of Pollux.
function told({ level, text, diff, unwritten }: Notice) {
  if (diff && current?.diff.id === diff && current.diff.state === "orphaned") return; // it is shown already
  message(level, text, { diff, more: unwritten ? writer(diff!, "Write the file") : undefined });
}

// A press that was meant for something else must not write a file.
const offered = new Settling(() => {});

// writer returns a button that writes the accepted text of a diff, which its agent did not
// write.
function writer(id: string, label: string, overwrite?: string): HTMLElement {
  const b = element("button", label) as HTMLButtonElement;
  offered.restart();
  b.onclick = async (e) => {
    if (!offered.decides(e.detail)) return;
    b.disabled = true;
    try {
      const res = await client.call<AcceptResult>("diff/save", { id, overwrite });
      if (res.status !== "conflict") return; // Pollux withdraws the message
      message("warning", `${res.message} To replace what it holds now, which the journal keeps:`, { diff: id, more: writer(id, "Overwrite the file", res.version) });
    } catch (err) {
      message("error", (err as Error).message, { diff: id, more: writer(id, label, overwrite) });
    }
  };
  return b;
}

// icon returns the page's icon, with a dot if a change is pending.
function icon(dot: boolean): string {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1f4b8f"/>` +
    `<path d="M11 25V7h6a5.5 5.5 0 0 1 0 11h-6" fill="none" stroke="#fff" stroke-width="4"/>` +
    `${dot ? `<circle cx="25" cy="25" r="7" fill="#f0883e"/>` : ""}</svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

const count = (n: number, what: string) => `${n} ${what}${n === 1 ? "" : "s"}`;

function other(step: number) {
  const all = [...$("list").querySelectorAll<HTMLElement>(".item")].map((b) => items.get(b.dataset.id!)!);
  if (all.length < 2 || !current) return;
  show(all[(all.indexOf(current) + step + all.length) % all.length], true);
  render();
}

function toggleMode() {
  hint(alone());
  if (alone()) return;
  unifiedWanted = !unifiedWanted;
  localStorage.setItem("pollux-unified", unifiedWanted ? "1" : "0");
  draw(true);
  render();
}

// onHunk changes the hunk at the cursor. The rule for decisions applies.
function onHunk(change: (view: DiffView, item: Item) => boolean, none: string) {
  const may = settling.decides(0);
  if (!view || !current || current.diff.state === "accepted") return;
  if (current.diff.readOnly) return hint(`This text is read-only. ${current.diff.readOnly}.`);
  if (!may) return hint(appeared);
  hint(change(view, current) ? "" : none);
  render();
}

const noHunk = "The cursor is not in a hunk. Press n to go to the next one.";

const actions: Record<string, (e?: MouseEvent) => void> = {
  accept: (e) => decide("accept", e?.detail ?? 0),
  reject: (e) => decide("reject", e?.detail ?? 0),
  next: () => view?.next(),
  previous: () => view?.previous(),
  mode: toggleMode,
  reset: () => current && current.diff.state !== "accepted" && !current.diff.readOnly && view?.replace(toLF(current.diff.proposed, current.crlf)),
  help: () => {
    const d = $<HTMLDialogElement>("keys");
    if (d.open) d.close();
    else d.showModal();
  },
};
for (const [id, run] of Object.entries(actions)) $(id).onclick = run;
$("unkeep").onclick = () => {
  if (current) current.original = undefined;
  draw(true);
  render();
};
$("outside-keep").onclick = () => ask("outside/dismiss", {});
$("keys-close").onclick = () => actions.help();
$("keys").addEventListener("close", () => settling.restart()); // the dialog covered the change

// The single keys are the same as in pollux review. They work outside the text.
const scroll = (top: number) => $("view").scrollBy({ top });
const keys: Record<string, () => void> = {
  y: actions.accept,
  r: actions.reject,
  n: actions.next,
  p: actions.previous,
  u: () => onHunk((view) => view.undo(), noHunk),
  a: () => onHunk((view, item) => view.take(toLF(item.diff.proposed, item.crlf)), "The text here is as proposed. Press u to undo the hunk."),
  s: () => onHunk((view) => view.keep(), noHunk),
  e: () => onHunk((view) => (view.editor.focus(), true), ""),
  v: actions.mode,
  "]": () => other(1),
  "[": () => other(-1),
  j: () => scroll(40),
  k: () => scroll(-40),
  g: () => scroll(-$("view").scrollHeight),
  G: () => scroll($("view").scrollHeight),
  "?": actions.help,
};

// single handles a single key. It reports whether it did.
function single(e: KeyboardEvent): boolean {
  const run = Object.hasOwn(keys, e.key) && keys[e.key];
  const typing = (e.target as HTMLElement).closest?.("input, textarea, select, [contenteditable=true]");
  if (!run || typing || e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return false;
  if ($<HTMLDialogElement>("keys").open && e.key !== "?") return false;
  e.preventDefault();
  e.stopPropagation();
  run();
  return true;
}

addEventListener("keydown", (e) => {
  const mod = e.ctrlKey || e.metaKey;
  if (single(e)) return;
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

// On a phone, the list of keys has the settings of the page too: the header has no room.
function place() {
  const settings = [$("notify"), $("theme")];
  if (phone.matches) $("options").append(...settings);
  else $("help").before(...settings);
  $("help").textContent = $("keys-title").textContent = phone.matches ? "More" : "Keys";
}
phone.addEventListener("change", place);
place();

// enter connects with a link. It keeps the link, which is no longer in the address bar,
// until Pollux answers or another link is opened.
let entered = "";
function enter(link: string) {
  entered = link;
  login(link).then((secret) => {
    shut = "";
    render();
    client.open(secret);
  }, (err: Error) => {
    if (err instanceof Unreachable) setTimeout(() => entered === link && enter(link), retryDelay);
    if (online) return;
    shut = err.message;
    render();
  });
}
// Opening a link in this tab changes only the fragment.
addEventListener("hashchange", () => location.hash && enter(takeLink()));
render();
enter(opened);
