// Notifications of the browser, for changes that arrive while the page is not in view.
// The browser is asked for its permission only when the user presses the button.

const key = "pollux-notify";
const button = document.getElementById("notify") as HTMLButtonElement;
const supported = "Notification" in window;
const wanted = () => supported && Notification.permission === "granted" && localStorage.getItem(key) === "1";
const shown = new Map<string, Notification>();

function render() {
  button.hidden = !supported;
  button.setAttribute("aria-pressed", String(wanted()));
}

button.onclick = async () => {
  const on = !wanted();
  if (on && Notification.permission !== "granted" && await Notification.requestPermission() !== "granted") {
    button.title = "The browser does not allow this page to notify you. Allow it in the settings of the site.";
    return render();
  }
  localStorage.setItem(key, on ? "1" : "0");
  render();
};
render();

// notify announces a pending change.
export function notify(id: string, text: string) {
  if (!wanted() || document.hasFocus()) return;
  try {
    const n = new Notification("Pollux", { body: text, tag: id });
    n.onclick = () => {
      window.focus();
      n.close();
    };
    shown.set(id, n);
  } catch {
    // this browser notifies only through a service worker
  }
}

// withdraw closes the notification of a change that is no longer pending.
export function withdraw(id: string) {
  shown.get(id)?.close();
  shown.delete(id);
}
