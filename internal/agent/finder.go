package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// A Finder says which program an agent is, and for which requests one process can work.
type Finder struct {
	// Command is the program, a name on the PATH. CommandVar is the environment variable that
	// overrides it.
	Command, CommandVar string
	// Environment returns the variables of an environment that the agent receives,
	// sorted by name. Pollux adds its own to them. Sources that differ only in
	// other variables share a process.
	Environment func(Env) []string
	// Locate returns the program of a source without running it. The Version is empty
	// if no package names it. The error is an [*Error] of kind [NotInstalled].
	Locate func(Source) (Program, error)
	// AskVersion runs a program to learn its version, which stays empty if the program
	// does not report it. The error is [context.Cause] of the context.
	AskVersion func(context.Context, Source, Program) (Program, error)
	// ReadOnly returns an error for a program that cannot be enforced read-only.
	// Pollux does not start it.
	ReadOnly func(Source, Program) error
}

// Find returns the program of a source and its version. It runs the program only if no
// package names the version. The error is an [*Error] of kind [NotInstalled], or
// [context.Cause] of the context.
func (f *Finder) Find(ctx context.Context, from Source) (Program, error) {
	program, err := f.Locate(from)
	if err != nil || program.Version != "" {
		return program, err
	}
	return f.AskVersion(ctx, from, program)
}

// Usable reports whether the program of a source is installed and can be enforced
// read-only, as far as that is known without running it.
func (f *Finder) Usable(from Source) bool {
	program, err := f.Locate(from)
	return err == nil && (program.Version == "" || f.ReadOnly(from, program) == nil)
}

// Check returns the program of a source, with an error if it is not installed or cannot
// be enforced read-only. See [Runner].
func (f *Finder) Check(ctx context.Context, from Source) (Program, error) {
	program, err := f.Find(ctx, from)
	if err != nil {
		return program, err
	}
	return program, f.ReadOnly(from, program)
}

// SourceKey identifies a source. Sources with the same key get the same program
// with the same environment. The key reveals nothing about either.
func (f *Finder) SourceKey(from Source) string {
	h := sha256.New()
	for _, s := range append([]string{cmp.Or(from.Command, f.Command)}, f.Environment(from.Env)...) {
		fmt.Fprintf(h, "%d %s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}
