#!/bin/sh
# Installs what the tests need, then runs all checks and all tests. With the argument
# nightly, nothing is shortened: the end-to-end tests run with the race detector too, those of
# doctor ask the real agents about every cause instead of five, the stress tests make all
# their calls, and the pool is under load for half an hour. The agents are the newest ones.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/newest.sh
if [ "${1:-}" = nightly ]; then . ./scripts/newest.sh; fi
# Clones in other folders share what is built.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"
./scripts/setup.sh
./scripts/check.sh "$@"
export POLLUX_E2E=require GORACE=atexit_sleep_ms=10
status=0
race='' short=-short limit=65m parallel='-parallel 4'
if [ "${1:-}" = nightly ]; then race=-race short='' limit=3h parallel=''; export POLLUX_SOAK=30m; fi
# check.sh has run vet.
# A package that hangs is ended early enough to print where.
# The unit tests wait more than they compute, so four packages run at a time, and those that
# wait longest begin.
# shellcheck disable=SC2086 # options, or nothing
go test -race $short -vet=off -count=1 -p 4 -parallel 4 -timeout 10m \
	./internal/companion ./internal/agent/pool ./internal/cli ./internal/... || status=$?
# The next ones run one package at a time: they have timeouts, and the real CLIs use both
# cores.
others=$(go list ./... ./bench/... | grep -v '^pollux/internal/')
# shellcheck disable=SC2086 # a list
go test -race -vet=off -count=1 -p 1 -timeout 20m $others || status=$?
# These wait more than they compute, except with the race detector.
# shellcheck disable=SC2086 # options, or nothing
go test $race $short $parallel -vet=off -count=1 -timeout "$limit" ./e2e/... || status=$?
[ "$status" = 0 ] || [ -z "${newest:-}" ] || printf '%s\n' "a failure may be a difference:$newest" >&2
exit "$status"
