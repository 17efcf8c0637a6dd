#!/bin/sh
# All checks and all tests, with what they need installed first.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/check.sh
export POLLUX_E2E=require GORACE=atexit_sleep_ms=10
# The packages one after the other: each of them times what it does by its own
# patience, and the real CLIs take both cores.
go test -race -count=1 -p 1 -timeout 45m ./...
