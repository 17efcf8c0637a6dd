#!/bin/sh
# Checks what needs no browser and no CLI: formatting, vet on three systems, staticcheck, tidy
# modules, the editors' own checks, the built page, known vulnerabilities. With the argument
# nightly, staticcheck runs for three systems, too, and vet for two of them on arm64.
set -eu
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l *.go bench e2e editors internal release)
if [ -n "$unformatted" ]; then
	echo "check: run gofmt -w on: $unformatted" >&2
	exit 1
fi
staticcheck=$(go tool -n staticcheck)
for os in darwin windows; do
	GOOS=$os go vet ./... ./bench/...
	[ "${1:-}" != nightly ] || GOOS=$os "$staticcheck" ./... ./bench/...
done
if [ "${1:-}" = nightly ]; then
	for os in darwin linux; do
		GOOS=$os GOARCH=arm64 go vet ./...
	done
fi
# The end-to-end tests run on Linux only: they use its mounts, signals and /proc.
GOOS=linux go vet ./... ./bench/... ./e2e/...
GOOS=linux "$staticcheck" ./... ./bench/... ./e2e/...
for module in . bench e2e; do
	go -C "$module" mod tidy -diff
done
./scripts/check-editors.sh
./web/build.sh
if [ -n "$(git status --porcelain -- internal/view/web/page)" ]; then
	echo "check: internal/view/web/page differs from what web/build.sh writes: commit the new build" >&2
	git status --short -- internal/view/web/page >&2
	exit 1
fi
./scripts/vulncheck.sh
