#!/bin/sh
# Installs what `make release` built, the .deb and the npm tarball, each in a
# clean Debian without a network, which it creates in /var/tmp. In each it runs
# the first commands of a new user, and the demo up to the first answer, with the
# real Gemini CLI. It needs root, mmdebstrap and two minutes.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || {
	echo "smoke: run it as root" >&2
	exit 1
}
command -v mmdebstrap >/dev/null || apt-get install -y -qq mmdebstrap
[ -e dist/server.json ] || { echo "smoke: run make release first" >&2; exit 1; }
./scripts/setup.sh cli
version=$(sed -n 's/.*"version": "\(.*\)",/\1/p' dist/server.json | head -1)
arch=$(dpkg --print-architecture)
base=/var/tmp/pollux-smoke
if [ -z "${POLLUX_SMOKE:-}" ]; then
	rm -rf --one-file-system "$base"
	mkdir "$base"
	mmdebstrap --quiet --variant=minbase --include=nodejs,npm,procps trixie "$base/base.tar"
	# The mounts below exist only in this namespace and disappear with it.
	status=0
	POLLUX_SMOKE=1 unshare -m --propagation private "$0" || status=$?
	rm -rf --one-file-system "$base"
	exit $status
fi

in_root() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 TERM=xterm-256color REMOTE_CONTAINERS=1 "$@"; }
# Runs a command with no network but loopback.
offline() { unshare -n sh -c 'ip link set lo up; exec chroot "$@"' sh "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 TERM=xterm-256color REMOTE_CONTAINERS=1 "$@"; }

for kind in deb npm; do
	root=$base/$kind
	mkdir "$root"
	tar -xf "$base/base.tar" -C "$root"
	mount --rbind /proc "$root/proc"
	mount --rbind /dev "$root/dev"
	cp -r .cache/npm/gemini-0.61.0 "$root/opt/gemini"
	ln -s ../../../opt/gemini/node_modules/.bin/gemini "$root/usr/local/bin/gemini"
	echo "== $kind: install"
	case $kind in
	deb)
		cp "dist/pollux_${version}_linux_$arch.deb" "$root/tmp/pollux.deb"
		offline dpkg -i /tmp/pollux.deb
		in_root sh -c 'ls -l /usr/bin/pollux /usr/share/bash-completion/completions/pollux; ls /usr/share/man/man1/pollux*.1 2>/dev/null | wc -l'
		;;
	npm)
		cp "dist/pollux-gemini-$version.tgz" "$root/tmp/pollux.tgz"
		offline npm install --global --offline --no-audit --no-fund --loglevel=error /tmp/pollux.tgz
		in_root sh -c 'ls -lL $(command -v pollux); ls /usr/local/lib/node_modules/pollux-gemini/native'
		;;
	esac
	echo "== $kind: first commands"
	offline pollux --version
	offline pollux status
	offline pollux doctor || true
	printf '%s\n%s\n' '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"smoke","version":"1"}}}' '{"jsonrpc":"2.0","method":"notifications/initialized"}' |
		offline pollux bridge | grep -o '"serverInfo":{[^}]*}'
	offline pollux conformance -- pollux ide --standalone >"$base/conformance.log" || {
		cat "$base/conformance.log"
		exit 1
	}
	tail -1 "$base/conformance.log"
	echo "== $kind: the demo's first step"
	# script(1) is the terminal; a fifo is the keyboard.
	mkfifo "$root/tmp/keys"
	offline script -qfc 'stty rows 50 cols 160; pollux demo --no-browser' /tmp/demo.log <"$root/tmp/keys" >/dev/null &
	exec 3>"$root/tmp/keys"
	await() { # TEXT
		for _ in $(seq 600); do
			grep -qa "$1" "$root/tmp/demo.log" 2>/dev/null && return
			sleep 0.1
		done
		cat "$root/tmp/demo.log"
		echo "smoke: the demo never showed: $1" >&2
		exit 1
	}
	await 'review changes at this link'
	await 'Type your message'
	await '2 open files'
	printf 'make it kinder' >&3
	await 'make it kinder'
	sleep 1
	printf '\r' >&3
	await 'I see greet.py open in the simulated editor, the cursor in line 4'
	await 'Apply this change'
	printf '\003' >&3
	sleep 1
	printf '\003\003' >&3
	exec 3>&-
	wait
	echo "the demo shows: $(grep -ao 'I see greet.py open in the simulated editor, the cursor in line 4' "$root/tmp/demo.log" | head -1)"
	left=$(in_root sh -c 'ls -d /tmp/pollux-demo-* /tmp/gemini/ide/* 2>/dev/null' || true)
	[ -z "$left" ] || { echo "smoke: left behind: $left" >&2; exit 1; }
	echo "== $kind: remove"
	case $kind in
	deb) offline dpkg -r pollux ;;
	npm) offline npm uninstall --global --offline --loglevel=error pollux-gemini ;;
	esac
	if in_root sh -c 'command -v pollux'; then
		echo "smoke: pollux is still installed" >&2
		exit 1
	fi
done
echo "== both packages passed"
