package cli

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"pollux/internal/agent/gemini/download"
	"pollux/internal/agent/gemini/settings"
	"pollux/internal/ide"
	"pollux/internal/sys/disk"
	"pollux/internal/termtext"
)

// An offer is a question that Pollux does not ask again after a no.
type offer string

const (
	ideModeOffer  offer = "gemini-ide-mode"
	downloadOffer offer = "gemini-download"
)

// file returns the name in the state directory of the file that exists if the user has declined.
func (o offer) file() string { return filepath.Join("declined", string(o)) }

// declined reports whether the user has declined.
func (o offer) declined() bool {
	dir, err := disk.StateDir()
	return err == nil && disk.Exists(filepath.Join(dir, o.file()))
}

// accepted asks the question, unless the user has declined before. A no is
// remembered. asked reports whether the question was asked.
func (o offer) accepted(ctx context.Context, streams IO, question string) (yes, asked bool, err error) {
	if o.declined() {
		return false, false, nil
	}
	yes, err = confirm(ctx, streams, question)
	if err != nil || yes {
		return yes, true, err
	}
	if err := writeState(o.file(), ""); err != nil {
		say(streams.Err, "cannot remember the answer: %v", err)
	}
	return false, true, nil
}

// offerIDEMode offers to turn on IDE mode in Gemini CLI's settings, unless they
// already turn it on or off. With yes it does not ask. Without a terminal, it prints
// the instructions instead.
//
// Gemini CLI connects to a companion only in IDE mode. No variable, flag or
// private file of Pollux can turn it on for one run: the CLI reads system-wide
// settings only from directories that belong to root. The CLI's own question,
// "Do you want to connect ... ?", ends in an error for editors without an
// extension of the CLI. After /ide enable in a running CLI, an answer in its
// terminal hangs until the change is answered elsewhere, so the CLI must restart.
func offerIDEMode(ctx context.Context, streams IO, yes bool) error {
	path, err := settings.UserFile()
	if err != nil {
		return err
	}
	set, err := settings.IDEModeSet(path)
	if err != nil {
		say(streams.Err, "%v", err)
		return nil
	}
	if set {
		return nil
	}
	asked := false
	if !yes {
		if !isTerminal(streams.In) {
			say(streams.Err, "Gemini CLI's IDE mode is off: type /ide enable in it, once, then restart it")
			return nil
		}
		if yes, asked, err = ideModeOffer.accepted(ctx, streams,
			"pollux: Gemini CLI connects to editors only in IDE mode, which is not on.\nTurn it on in "+path+"?"); err != nil {
			return err
		}
	}
	switch {
	case yes:
		if err := settings.EnableIDE(path); err != nil {
			return err
		}
		say(streams.Err, "turned on IDE mode in %s; if Gemini CLI is running, restart it", path)
	case asked:
		say(streams.Err, "IDE mode stays off, and Pollux does not ask again: `pollux doctor --fix` turns it on")
	default:
		say(streams.Err, "Gemini CLI does not connect, because its IDE mode is off: `pollux doctor --fix` turns it on")
	}
	return nil
}

// downloaded returns the path of an agent that Pollux has downloaded.
func downloaded(l ide.Launch) (path string, ok bool) {
	if l.Package != download.Package {
		return "", false
	}
	return download.Find(nil)
}

// offerDownload offers to download an agent that is not installed, and returns the
// path of its command.
func offerDownload(ctx context.Context, streams IO, l ide.Launch) (string, error) {
	_, err := exec.LookPath("npm")
	dir, dirErr := download.Dir(nil)
	consent := loadSettings().Text("run.download")
	switch {
	case l.Package != download.Package || err != nil || dirErr != nil:
		return "", notInstalled(l)
	case consent == "yes":
		return fetch(ctx, streams.Err, l)
	case consent == "no" || downloadOffer.declined():
		return "", fmt.Errorf("%w; or let Pollux download it, which you declined: set run.download to yes (pollux config edit)", notInstalled(l))
	case !isTerminal(streams.In):
		return "", fmt.Errorf("%w; or run this in a terminal, where Pollux offers to download it", notInstalled(l))
	}
	yes, _, err := downloadOffer.accepted(ctx, streams, fmt.Sprintf(
		"pollux: %s is not on the PATH.\nDownload %s %s (%s, tested with Pollux) from npm into %s?",
		l.Title, l.Title, download.Version, download.Size, dir))
	if err != nil {
		return "", err
	}
	if !yes {
		return "", fmt.Errorf("%w; Pollux does not ask again", notInstalled(l))
	}
	return fetch(ctx, streams.Err, l)
}

// fetch downloads an agent and shows the progress.
func fetch(ctx context.Context, w io.Writer, l ide.Launch) (string, error) {
	ctx, stop := untilSignal(ctx)
	defer stop()
	what := fmt.Sprintf("%s %s", l.Title, download.Version)
	var packages atomic.Int32
	started := time.Now()
	hide := showProgress(w, func() string {
		return fmt.Sprintf("pollux: downloading %s: %s, %s (Ctrl-C stops it)", what,
			termtext.Count(int(packages.Load()), "package"), time.Since(started).Truncate(time.Second))
	})
	path, err := download.Install(ctx, func() { packages.Add(1) })
	hide()
	switch {
	case ctx.Err() != nil:
		return "", interrupted
	case err != nil:
		return "", fmt.Errorf("cannot download %s: %w\nCheck the network, or install it with `npm install -g %s`",
			what, err, l.Package)
	}
	say(w, "downloaded %s; `pollux ask` and `pollux bridge` use it, too", what)
	return path, nil
}

// showProgress shows a message on a terminal, updated every second, until hide is
// called. It writes nothing to anything else.
func showProgress(w io.Writer, message func() string) (hide func()) {
	status := newStatusLine(w)
	if !status.shown() {
		return func() {}
	}
	shown, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(shown)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			status.show(message())
			select {
			case <-tick.C:
			case <-stop:
				status.clear()
				return
			}
		}
	}()
	return func() { close(stop); <-shown }
}
