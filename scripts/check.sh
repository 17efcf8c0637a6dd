#!/bin/sh
# What needs no browser and no CLI: formatting, vet on three systems, linters,
# the editors' own checks, and that the committed page is what its source builds.
set -eu
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l main.go internal editors e2e bench release)
if [ -n "$unformatted" ]; then
	echo "check: run gofmt -w on: $unformatted" >&2
	exit 1
fi
go vet ./...
# The stories of e2e are of Linux: its terminals, signals and /proc.
GOOS=darwin go vet . ./bench ./editors ./internal/...
GOOS=windows go vet . ./bench ./editors ./internal/...
go tool staticcheck ./...
go mod tidy -diff
./scripts/check-editors.sh
./web/build.sh
if [ -n "$(git status --porcelain -- internal/view/web/page)" ]; then
	echo "check: internal/view/web/page is not what web/ builds: commit the new build" >&2
	git status --short -- internal/view/web/page >&2
	exit 1
fi
./scripts/vulncheck.sh
