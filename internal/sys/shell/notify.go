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
// osascript on macOS, and reports whether it did. It does nothing without a desktop or such
// a command, at the other end of ssh, and on Windows.
func Notify(ctx context.Context, title, text string) bool {
	if os.Getenv("SSH_CONNECTION") != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	switch {
	case runtime.GOOS == "darwin":
		const script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run"
		return exec.CommandContext(ctx, "osascript", "-e", script, title, text).Run() == nil
	case runtime.GOOS != "windows" && (os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""):
		return exec.CommandContext(ctx, "notify-send", "--app-name=Pollux", "--", title, html.EscapeString(text)).Run() == nil // the text is markup
	}
	return false
}
