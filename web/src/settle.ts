// The rule for decisions (docs/PROTOCOL.md): a change can be decided on once it has
// been in view for half a second without a key or button press. Otherwise a key or
// click that was meant for one change, or the second click of a double click, would
// decide on the change that replaced it.

const settleDelay = 500; // milliseconds

export class Settling {
  private view = 0; // counts the changes and texts that came into view
  private at = Infinity; // when the change in view is settled, as an event's timeStamp
  private timer = 0;
  private press?: { view: number; decides: boolean };
  private held = 0; // the view in which the repeating key was pressed

  // changed is called when the result of settled may have changed.
  constructor(private changed: () => void) {
    addEventListener("keydown", (e) => this.key(e), { capture: true });
    addEventListener("pointerdown", (e) => this.pressed(e.timeStamp, false), { capture: true });
    document.addEventListener("visibilitychange", () => this.restart());
  }

  // restart starts the delay again. Call it when another change or text comes into view.
  restart() {
    const view = ++this.view;
    this.at = Infinity;
    clearTimeout(this.timer);
    this.changed();
    if (document.hidden) return; // until it is visible
    // The second frame starts once the first is on the screen.
    requestAnimationFrame(() => requestAnimationFrame(() => {
      if (view === this.view) this.wait(performance.now());
    }));
  }

  settled(now = performance.now()): boolean {
    return now >= this.at;
  }

  // decides reports whether the key or click that is being handled may decide. clicks
  // is the click count of a mouse event, or 0 for a key.
  decides(clicks: number): boolean {
    const press = this.press;
    this.press = undefined;
    if (clicks < 2 && (press ? press.decides && press.view === this.view : this.settled())) return true;
    if (this.at !== Infinity) this.wait(performance.now());
    return false;
  }

  private wait(from: number) {
    this.at = Math.max(from + settleDelay, this.at === Infinity ? 0 : this.at);
    clearTimeout(this.timer);
    const check = () => {
      const settled = this.settled(); // before changed, which takes time
      this.changed();
      if (!settled) this.timer = window.setTimeout(check, this.at - performance.now());
    };
    check();
  }

  private key(e: KeyboardEvent) {
    if (!e.repeat) this.held = this.view;
    else if (this.held !== this.view) {
      // A key that has been held since an earlier change does not affect this one.
      e.preventDefault();
      e.stopImmediatePropagation();
    }
    this.pressed(e.timeStamp, e.repeat);
  }

  private pressed(now: number, repeat: boolean) {
    this.press = { view: this.view, decides: !repeat && this.settled(now) };
    if (!this.settled(now) && this.at !== Infinity) this.wait(now);
  }
}
