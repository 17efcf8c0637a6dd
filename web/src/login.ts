// How the page gets its secret: from the link that opened it, which works once, or
// from the tab's storage after a reload.

const key = "pollux-secret";

// takeLink returns the secret of the link and removes it from the address bar
// and the history.
export function takeLink(): string {
  const link = location.hash.slice(1);
  if (link) history.replaceState(null, "", location.pathname);
  return link;
}

// An Unreachable error means that nothing answered. The link can be tried again.
export class Unreachable extends Error {}

// login returns the page secret. Its error tells the user what to do.
export async function login(link: string): Promise<string> {
  const kept = sessionStorage.getItem(key);
  if (!link) {
    if (kept === null) throw new Error("This page needs a link from Pollux. To open it: pollux open");
    return kept;
  }
  const res = await fetch("login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ link }),
  }).catch(() => {
    throw new Unreachable("Pollux cannot be reached. This page keeps its link and tries again. Pollux may have ended: pollux status lists running companions.");
  });
  if (res.ok) {
    const { secret } = await res.json();
    sessionStorage.setItem(key, secret);
    return secret;
  }
  if (kept !== null) return kept; // the tab has logged in before
  throw new Error(await res.text());
}

export function forget() {
  sessionStorage.removeItem(key);
}
