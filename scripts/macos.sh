#!/bin/sh
# Runs on a Mac what needs no agent and no editor: vet, the unit tests with a summary, and
# the conformance kit. release/README.md says what else to look at.
set -eu
cd "$(dirname "$0")/.."
[ "$(uname -s)" = Darwin ] || {
	echo "macos: run it on a Mac: release/README.md" >&2
	exit 1
}
sw_vers
uname -m
go version
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
go vet ./...
CGO_ENABLED=0 go build -o "$tmp/pollux" .
status=0
go tool gotestsum --format pkgname --format-hide-empty-pkg -- -count=1 -vet=off -timeout 30m ./... || status=1
echo "== the conformance kit"
"$tmp/pollux" conformance -- "$tmp/pollux" ide --standalone || status=1
exit "$status"
