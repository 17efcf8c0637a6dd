// Package editors holds the plugins and snippets for editors, which the binary
// carries so that `pollux install` needs nothing else. Each folder is laid out
// as its editor's own plugin manager wants it.
package editors

import "embed"

// FS has a directory for each editor.
//
//go:embed all:nvim all:vim all:emacs kakoune helix
var FS embed.FS
