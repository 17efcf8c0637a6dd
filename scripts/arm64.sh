#!/bin/sh
# Runs the unit tests of linux/arm64 under qemu and prints a summary:
#
#   arm64.sh [FLAG...] [PACKAGE...]   tests the packages, by default all of them; flags are
#                                     those of `go test`
#
# It needs root and mmdebstrap, and 16 MB in .cache for qemu. While the tests run, the kernel
# starts programs for arm64 with it, because tests start themselves and Pollux. The qemu of
# bookworm does not do: a process that it forks can wait forever for a lock of its parent.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || {
	echo "arm64: run it as root" >&2
	exit 1
}
mkdir -p .cache
qemu=$(realpath .cache)/qemu-aarch64
formats=/proc/sys/fs/binfmt_misc
format=pollux-arm64-$$
tmp=$(mktemp -d)
mounted=
cleanup() {
	[ ! -e $formats/$format ] || echo -1 >$formats/$format
	[ -z "$mounted" ] || umount $formats 2>/dev/null || true # another run may need it
	rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

[ -x "$qemu" ] || {
	command -v mmdebstrap >/dev/null || {
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap
	}
	echo "arm64: unpacking qemu" >&2
	mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' --variant=extract --include=qemu-user \
		trixie "$tmp/debian"
	cp "$tmp/debian/usr/bin/qemu-aarch64" "$qemu.$$"
	mv "$qemu.$$" "$qemu"
	rm -rf "$tmp/debian"
}
[ -e $formats/register ] || {
	mount -t binfmt_misc binfmt_misc $formats
	mounted=1
}
# ELF files of arm64, as in Debian's qemu-user-binfmt.
printf '%s' ":$format:M::"'\x7f\x45\x4c\x46\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$qemu:OPF" >$formats/register

all=1
for arg; do
	case $arg in -*) ;; *) all= ;; esac
done
[ -z "$all" ] || set -- "$@" ./...
gotestsum=$(go tool -n gotestsum)
export GOARCH=arm64 CGO_ENABLED=0
# An emulated program takes several times as long.
"$gotestsum" --format pkgname --format-hide-empty-pkg -- -count=1 -p 1 -vet=off -timeout 60m "$@"
