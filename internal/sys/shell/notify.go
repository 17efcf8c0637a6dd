package shell

import (
	"context"
	"html"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// notifyTimeout limits a command that shows a notification.
const notifyTimeout = 5 * time.Second

// Notify shows a notification on this machine's desktop: with notify-send, or with
// osascript on macOS. It does nothing without a desktop or such a command, at the
// other end of ssh, and on Windows.
func Notify(ctx context.Context, title, text string) {
	if os.Getenv("SSH_CONNECTION") != "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	switch {
	case runtime.GOOS == "darwin":
		const script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
		exec.CommandContext(ctx, "osascript", "-e", script, title, text).Run()
	case runtime.GOOS != "windows" && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""):
		exec.CommandContext(ctx, "notify-send", "--app-name=Pollux", "--", title, html.EscapeString(text)).Run() // the text is markup
	}
}
