#!/bin/sh
# Checks what needs no browser and no CLI: formatting, vet and staticcheck on
# three systems, tidy modules, the editors' own checks, the built page, known
# vulnerabilities.
set -eu
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l *.go bench e2e editors internal release scripts)
if [ -n "$unformatted" ]; then
	echo "check: run gofmt -w on: $unformatted" >&2
	exit 1
fi
staticcheck=$(go tool -n staticcheck)
for os in darwin windows; do
	GOOS=$os go vet ./... ./bench/...
	GOOS=$os "$staticcheck" ./... ./bench/...
done
for os in darwin linux; do
	GOOS=$os GOARCH=arm64 go vet ./...
done
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
./scripts/third-party.sh
if [ -n "$(git status --porcelain -- third_party)" ]; then
	echo "check: third_party differs from what scripts/third-party.sh writes: change the patch and run it" >&2
	git status --short -- third_party >&2
	exit 1
fi
./scripts/vulncheck.sh
