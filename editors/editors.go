// Package editors embeds the plugins and snippets for editors, so that `pollux
// install` needs only the binary. Each folder has the layout that the plugin
// managers of its editor expect.
package editors

import "embed"

// FS contains a directory for each editor; Neovim's is that of Vim.
//
//go:embed all:vim all:emacs kakoune helix
var FS embed.FS
