#!/bin/sh
# Installs what the tests need, then runs all checks and all tests.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/check.sh
export POLLUX_E2E=require GORACE=atexit_sleep_ms=10
# One package at a time: the tests have timeouts, and the real CLIs use both cores.
go test -race -count=1 -p 1 -timeout 90m ./... ./bench/... ./e2e/...
