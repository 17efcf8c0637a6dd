// The page's client of the editor protocol (docs/PROTOCOL.md). It receives messages
// as an event stream and sends them as POST requests that name the stream. Every
// request carries the page secret in a header, which an EventSource cannot send.

export interface Diff {
  id: string;
  path: string;
  // accepted: the agent must write the file; outside: the file has the text already
  state: "open" | "accepted" | "orphaned" | "outside";
  original: string;
  exists: boolean;
  eol?: string;
  proposed: string;
  content?: string; // missing if it equals the proposal
  agent?: string; // missing from older companions
  client: string; // the agent with its version
  opened: number;
  readOnly?: string; // why the text cannot be edited; missing if it can
}

// agentName returns the name of the agent that proposed a diff.
export const agentName = (diff: Diff) => diff.agent || diff.client || "the agent";

export interface AcceptResult {
  status: "accepted" | "conflict" | "empty";
  message?: string;
  disk?: string;
  deleted?: boolean;
  version?: string;
}

export interface Handler {
  // connected brings the page up to date. If it fails, the connection ends.
  connected(): Promise<void>;
  // disconnected is called after each failed attempt too. away is set if the attempts have
  // failed for minutes.
  disconnected(loggedOut: boolean, away: boolean): void;
  open(diff: Diff): void;
  // close returns the text as the user left it.
  close(id: string, reason: string): string | undefined;
  changed(id: string, content?: string, state?: string): void;
  // clients gets the connected agents.
  clients(all: Agent[]): void;
  // outside gets the changes outside Pollux.
  outside(list: Outside): void;
  // began is called before a new connection repeats what is pending.
  began(): void;
  message(m: Notice): void;
}

export interface Agent {
  name: string;
  label: string; // as `pollux status` names it
  limits?: string; // what it cannot do, such as "no review"
  silent?: string; // that it changes files without asking, and how to change that
}

export interface Outside {
  files: OutsideFile[];
  more?: boolean; // there may be others
  manual?: string; // how to make the connected agents ask
}

export interface OutsideFile {
  path: string;
  change: "changed" | "created" | "deleted";
  notice?: string; // why the change cannot be displayed
}

export interface Notice {
  level: string;
  text: string;
  diff?: string; // the diff that it is about
  unwritten?: boolean; // diff/save writes the accepted text
}

interface Message {
  id?: number;
  method?: string;
  params?: any;
  result?: any;
  error?: { message: string };
}

// retryDelay is the pause before the page connects again, in milliseconds.
export const retryDelay = 1000;

// After awayDelay without a connection, the page connects again less often.
const awayDelay = 120_000;
const awayRetryDelay = 10_000;

// callTimeout limits how long Pollux may take to receive a message and answer it, in
// milliseconds.
const callTimeout = 15_000;

const unanswered = "Pollux did not answer within 15 seconds. What you decided may still take effect: look at the file. If the change is still here when the page is connected again, decide again.";
const lost = "The connection to Pollux was lost. When the page is connected again, look at the change and decide.";

// A Connection is an event stream and the requests that name it. abort() ends all of
// them.
class Connection extends AbortController {
  stream = "";
  ready = false; // both sides are up to date
}

export class Client {
  private secret = "";
  private running = false;
  private connection = new Connection();
  private nextID = 1;
  private last: Promise<void> = Promise.resolve();
  private seen = Date.now(); // when the page was last connected
  private waiting = new Map<number, (m: Message) => void>();

  constructor(private handler: Handler) {}

  // open connects, and reconnects until Pollux refuses the secret.
  async open(secret: string) {
    if (secret !== this.secret) this.connection.abort(new Error(lost)); // it belongs to a companion that has ended
    this.secret = secret;
    if (this.running) return;
    this.running = true;
    while (this.running) {
      const connection = this.connection = new Connection();
      const asked = this.secret;
      const refused = await this.read(connection).catch(() => false) && this.secret === asked;
      connection.abort(new Error(lost));
      for (const done of this.waiting.values()) done({ error: { message: connection.signal.reason.message } });
      this.waiting.clear();
      this.running = !refused;
      if (connection.ready) this.seen = Date.now();
      const away = Date.now() - this.seen > awayDelay;
      this.handler.disconnected(refused, away);
      if (!refused) await new Promise((done) => setTimeout(done, away ? awayRetryDelay : retryDelay));
    }
  }

  private authorization(): Record<string, string> {
    return { Authorization: `Bearer ${this.secret}` };
  }

  // read reads one event stream to its end. It reports whether Pollux refused it.
  private async read(connection: Connection): Promise<boolean> {
    const res = await fetch("events", { headers: this.authorization(), cache: "no-store", signal: connection.signal });
    if (res.status === 401 || res.status === 403) return true;
    if (!res.ok || !res.body) return false;
    const stream = res.body.pipeThrough(new TextDecoderStream()).getReader();
    let parts: string[] = []; // of an incomplete line: a message may be megabytes long
    let named = false;
    for (;;) {
      const { value, done } = await stream.read();
      if (done) return false;
      const lines = value.split("\n");
      parts.push(lines[0]);
      if (lines.length === 1) continue;
      lines[0] = parts.join("");
      parts = [lines.pop()!];
      for (const line of lines) {
        if (line === "event: stream") named = true;
        if (!line.startsWith("data: ")) continue;
        if (named) this.begin(connection, line.slice(6));
        else this.receive(JSON.parse(line.slice(6)));
        named = false;
      }
    }
  }

  private begin(connection: Connection, stream: string) {
    connection.stream = stream;
    this.handler.began();
    this.call("initialize", {
      protocol: 1,
      client: { name: "browser page", version: "" },
      editor: { name: "", displayName: "" },
      diff: true,
    }).then(() => this.handler.connected()).then(() => {
      connection.ready = true;
    }).catch((err) => connection.abort(err));
  }

  private async receive(m: Message) {
    if (m.method === undefined) {
      const done = this.waiting.get(m.id ?? -1);
      this.waiting.delete(m.id ?? -1);
      done?.(m);
      return;
    }
    const p = m.params ?? {};
    let result: unknown = {};
    switch (m.method) {
      case "diff/open":
        this.handler.open(p);
        break;
      case "diff/close":
        result = { content: this.handler.close(p.id, p.reason) };
        break;
      case "diff/changed":
        this.handler.changed(p.id, p.content, p.state);
        break;
      case "clients":
        this.handler.clients(p.clients);
        break;
      case "outside":
        this.handler.outside(p);
        break;
      case "message":
        this.handler.message(p);
        break;
    }
    if (m.id !== undefined) await this.post({ id: m.id, result });
  }

  // post sends messages one after the other: a later edit must not overtake an earlier
  // one.
  private post(m: Message): Promise<void> {
    const connection = this.connection; // not a later one: that starts from the state that Pollux has
    const sent = this.last.then(() => this.postNow(connection, m));
    this.last = sent.catch(() => {});
    return sent;
  }

  // postNow ends the connection if it fails: the next connection synchronizes both
  // sides.
  private async postNow(connection: Connection, m: Message): Promise<void> {
    connection.signal.throwIfAborted();
    if (!connection.stream) throw new Error("Pollux is not connected.");
    let res: Response;
    try {
      res = await fetch(`rpc?stream=${connection.stream}`, {
        method: "POST",
        headers: { ...this.authorization(), "Content-Type": "application/json" },
        body: JSON.stringify({ jsonrpc: "2.0", ...m }),
        signal: connection.signal,
      });
    } catch (err) {
      connection.abort(err);
      throw err;
    }
    if (res.ok) return;
    const err = new Error("Pollux did not accept the message.");
    if (res.status !== 413) connection.abort(err); // 413: too large, and a retry would be too
    throw err;
  }

  async call<T>(method: string, params: unknown): Promise<T> {
    const id = this.nextID++;
    const answer = new Promise<Message>((done) => this.waiting.set(id, done));
    const m = await this.limited(this.post({ id, method, params }).then(() => answer, (err) => {
      this.waiting.delete(id);
      throw err;
    }));
    if (m.error) throw new Error(m.error.message);
    return m.result as T;
  }

  notify(method: string, params: unknown): Promise<void> {
    return this.limited(this.post({ method, params }));
  }

  // limited ends the connection, and with it the pending call, if that takes too long.
  private limited<T>(what: Promise<T>): Promise<T> {
    const connection = this.connection;
    const timer = setTimeout(() => connection.abort(new Error(unanswered)), callTimeout);
    return what.finally(() => clearTimeout(timer));
  }
}
