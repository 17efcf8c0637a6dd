// The page's half of the adapter protocol (docs/PROTOCOL.md): messages come as
// server-sent events, and go as POST requests that name the event stream.

export interface Diff {
  id: string;
  path: string;
  state: "open" | "orphaned";
  original: string;
  exists: boolean;
  eol?: string;
  proposed: string;
  content?: string; // left out if it is the proposal
  client: string;
  opened: number;
}

export interface AcceptResult {
  status: "accepted" | "conflict" | "empty";
  message?: string;
  disk?: string;
  version?: string;
}

export interface Handler {
  connected(): void;
  disconnected(loggedOut: boolean): void;
  open(diff: Diff): void;
  // close returns the text as the user left it.
  close(id: string, reason: string): string | undefined;
  changed(id: string, content?: string, state?: string): void;
  clients(names: string[]): void;
  message(level: string, text: string): void;
}

interface Message {
  id?: number;
  method?: string;
  params?: any;
  result?: any;
  error?: { message: string };
}

export class Door {
  private stream = "";
  private nextID = 1;
  private last: Promise<void> = Promise.resolve();
  private waiting = new Map<number, (m: Message) => void>();

  constructor(private handler: Handler) {
    const events = new EventSource("events");
    events.addEventListener("stream", (e) => {
      this.stream = (e as MessageEvent<string>).data;
      this.call("initialize", {
        protocol: 1,
        client: { name: "browser page", version: "" },
        editor: { name: "", displayName: "" },
        diff: true,
      }).then(() => this.handler.connected(), () => {});
    });
    events.onmessage = (e) => this.receive(JSON.parse(e.data));
    events.onerror = () => {
      this.stream = "";
      for (const done of this.waiting.values()) done({ error: { message: "The connection to Pollux was lost." } });
      this.waiting.clear();
      // The browser tries again by itself unless the server refused.
      this.handler.disconnected(events.readyState === EventSource.CLOSED);
    };
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
        this.handler.clients(p.clients.map((c: { name: string; version: string }) => `${c.name} ${c.version}`));
        break;
      case "message":
        this.handler.message(p.level, p.text);
        break;
    }
    if (m.id !== undefined) await this.post({ id: m.id, result });
  }

  // post sends one message after the other: a later edit must not overtake an
  // earlier one.
  private post(m: Message): Promise<void> {
    const sent = this.last.then(() => this.postNow(m));
    this.last = sent.catch(() => {});
    return sent;
  }

  private async postNow(m: Message): Promise<void> {
    if (!this.stream) throw new Error("Pollux is not connected.");
    const res = await fetch(`rpc?stream=${this.stream}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", ...m }),
    });
    if (!res.ok) throw new Error("Pollux did not take the message.");
  }

  async call<T>(method: string, params: unknown): Promise<T> {
    const id = this.nextID++;
    const answer = new Promise<Message>((done) => this.waiting.set(id, done));
    try {
      await this.post({ id, method, params });
    } catch (err) {
      this.waiting.delete(id);
      throw err;
    }
    const m = await answer;
    if (m.error) throw new Error(m.error.message);
    return m.result as T;
  }

  notify(method: string, params: unknown): Promise<void> {
    return this.post({ method, params });
  }
}
