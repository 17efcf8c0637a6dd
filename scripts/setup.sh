#!/bin/sh
# Installs what the tests need: missing Debian packages, and the real agents from
# npm, pinned, into .cache, where they take 2 GB. It can run again at any time, and
# downloads nothing that npm has in its cache. With the argument `cli` it installs only the
# current Gemini CLI, and with `agents` only the current agents and Node.js.
set -eu
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:/sbin
missing=
only=${1:-}
[ -n "$only" ] || for pair in chromium:chromium git:git ps:procps tmux:tmux bash:bash \
	nvim:neovim vim:vim-nox emacs:emacs-nox kak:kakoune \
	ssh:openssh-client sshd:openssh-server ip:iproute2 strace:strace; do
	command -v "${pair%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
# Neovim's package brings this library; vterm needs it too.
[ -n "$only" ] || ldconfig -p | grep -q libvterm.so.0 || missing="$missing libvterm0"
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
	mark=$dir/.done-$(echo "$*" | tr '/@ ' '___')
	[ -e "$mark" ] && return
	rm -rf "$dir"
	mkdir -p "$dir"
	echo '{"private":true}' >"$dir/package.json"
	npm install --prefix "$dir" --prefer-offline --no-audit --no-fund --ignore-scripts --loglevel=error "$@"
	touch "$mark"
}
# The releases that the tests run. A variable selects another one, for the tests too.
gemini=${GEMINI_VERSION:-0.61.0}
claude=${CLAUDE_VERSION:-2.1.332}
codex=${CODEX_VERSION:-0.171.0}
copilot=${COPILOT_VERSION:-1.0.102}
opencode=${OPENCODE_VERSION:-1.18.33}
qwen=${QWEN_VERSION:-0.24.4}
install "gemini-$gemini" "@google/gemini-cli@$gemini"
[ "$only" = cli ] && exit

# The packages are installed at the same time: most of it is waiting.
jobs=
also() {
	install "$@" &
	jobs="$jobs $!"
}
arch=$(node -p process.arch)
also "claude-$claude" "@anthropic-ai/claude-code@$claude"
also "codex-$codex" "@openai/codex@$codex"
also "copilot-$copilot" "@github/copilot@$copilot"
# Its main package would bring a second build for older processors.
also "opencode-$opencode" "opencode-linux-$arch@$opencode"
also "qwen-$qwen" "@qwen-code/qwen-code@$qwen"
also node "node-linux-$arch@22"
wait_all() {
	for job in $jobs; do wait "$job"; done
}
if [ "$only" = agents ]; then
	wait_all
	exit
fi
also gemini-0.20.2 @google/gemini-cli@0.20.2
also mcp-sdk @modelcontextprotocol/sdk@1.32.2
also conformance @modelcontextprotocol/conformance@0.1.16
also stylua @johnnymorganz/stylua@2.5.2
unpack lint vim-ale elpa-flycheck elpa-dash
unpack emacs-terminals elpa-vterm emacs-libvterm elpa-compat
# Debian has Eat from 13 on. Without it, only its own tests are skipped.
if apt-cache show elpa-eat >/dev/null 2>&1; then
	unpack eat elpa-eat
elif [ ! -e .cache/deb/eat ]; then
	echo "setup: this Debian has no elpa-eat: the tests of Eat in Emacs are skipped" >&2
fi
wait_all
