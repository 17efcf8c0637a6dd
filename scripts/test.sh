#!/bin/sh
# Installs what the tests need, then runs all checks and all tests.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/check.sh
export POLLUX_E2E=require GORACE=atexit_sleep_ms=10
status=0
# The unit tests wait more than they compute, so two packages run at a time.
go test -race -count=1 -p 2 -timeout 90m ./internal/... || status=$?
# These run one package at a time: they have timeouts, and the real CLIs use both
# cores.
others=$(go list ./... ./bench/... ./e2e/... | grep -v '^pollux/internal/')
go test -race -count=1 -p 1 -timeout 90m $others || status=$?
exit "$status"
