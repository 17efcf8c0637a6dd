package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"pollux/internal/agent/gemini/settings"
)

// Gemini CLI connects to a companion only with IDE mode on, which is a setting
// of the user's. No variable, flag or file of ours can turn it on for one run:
// the CLI takes its system-wide settings from directories of root's only. Its
// own first question, "Do you want to connect ... ?", leads nowhere for an
// editor that it has no extension for. So we ask.

// offerIDEMode asks the user to turn IDE mode on, where it is neither on nor
// turned off, and changes that one setting. Where nobody can be asked it says
// how.
func offerIDEMode(streams IO, interactive bool) error {
	path, err := settings.UserFile()
	if err != nil {
		return err
	}
	set, err := settings.IDEModeSet(path)
	if err != nil {
		fmt.Fprintf(streams.Err, "pollux: %v\n", err)
		return nil
	}
	if set {
		return nil
	}
	if !interactive {
		fmt.Fprintln(streams.Err, "pollux: Gemini CLI's IDE mode is off: type /ide enable in it, once")
		return nil
	}
	fmt.Fprintf(streams.Err, "pollux: Gemini CLI connects to editors only in IDE mode, which is not on.\nTurn it on in %s? [Y/n] ", path)
	yes, err := agreed(streams.In)
	if err != nil {
		return err
	}
	if !yes {
		fmt.Fprintln(streams.Err, "pollux: left off; /ide enable in Gemini CLI turns it on")
		return nil
	}
	return settings.EnableIDE(path)
}

// agreed reads the answer to a question that [Y/n] ends.
func agreed(in io.Reader) (bool, error) { return agreedTo(context.Background(), in) }

// agreedTo is agreed where signals end ctx, and not the process: what is typed
// after Ctrl-C is no answer.
func agreedTo(ctx context.Context, in io.Reader) (bool, error) {
	answer, err := readLine(ctx, bufio.NewReader(in))
	if err != nil {
		return false, err
	}
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "" || a == "y" || a == "yes", nil
}

// readLine reads a line, or returns when ctx ends. The read is left behind then.
func readLine(ctx context.Context, in *bufio.Reader) (string, error) {
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() {
		text, err := in.ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return l.text, errors.Join(l.err, context.Cause(ctx))
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
