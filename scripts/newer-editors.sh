#!/bin/sh
# Runs the editor tests with the editors of a newer Debian, in a chroot that it
# creates: newer-editors.sh trixie (or sid) [test pattern]. It needs root,
# mmdebstrap, 2 GB in /var/tmp, and a minute for the chroot. `make test` does not
# run it. The full output of the tests is in /var/tmp/RELEASE/e2e.log.
set -eu
cd "$(dirname "$0")/.."
release=${1:?name a release: trixie or sid}
pattern=${2:-TestEditor|TestKakoune|TestHelix|TestLanguageClient|TestReview}
root=/var/tmp/$release
[ "$(id -u)" = 0 ] || { echo "newer-editors: run it as root" >&2; exit 1; }
command -v mmdebstrap >/dev/null || apt-get install -y -qq mmdebstrap

if [ ! -e "$root/.made" ]; then
	rm -rf "$root"
	mmdebstrap --aptopt='Acquire::Check-Valid-Until "false"' --variant=minbase \
		--include=neovim,vim-nox,emacs-nox,hx,kakoune,nodejs,git,procps,tmux,bash,ca-certificates,ncurses-term \
		"$release" "$root"
	touch "$root/.made"
fi
./scripts/setup.sh cli
mkdir -p "$root/repo/e2e" "$root/repo/.cache" "$root/dev/pts"
CGO_ENABLED=0 go build -o "$root/repo/pollux" .
CGO_ENABLED=0 go test -c -o "$root/repo/e2e/e2e.test" ./e2e
cp -r e2e/testdata "$root/repo/e2e/"
cp -r .cache/npm "$root/repo/.cache/"
unmount() { for m in dev/pts dev proc; do umount "$root/$m" 2>/dev/null || true; done; }
trap unmount EXIT
for m in proc dev dev/pts; do mountpoint -q "$root/$m" || mount --bind "/$m" "$root/$m"; done
in_root() { chroot "$root" env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/root LANG=C.UTF-8 "$@"; }
for e in "nvim --version" "vim --version" "emacs --version" "kak -version" "hx --version" "node --version"; do
	in_root sh -c "$e" | head -1
done
in_root env POLLUX_BINARY=/repo/pollux POLLUX_E2E=require sh -c "cd /repo/e2e && ./e2e.test -test.v -test.run '$pattern'" | tee "$root/e2e.log" |
	grep --line-buffered -E '^ *--- |^(PASS|FAIL|panic)|_test.go'
grep -qx PASS "$root/e2e.log"
