#!/bin/sh
# Installs what the tests need, then runs all checks and all tests. With the argument
# nightly, nothing is shortened: the end-to-end tests and those of the commands run with the race
# detector, too, those of doctor ask the real agents about every cause instead of a few, the
# stress tests make all their calls, and the pool is under load for half an hour. The agents are
# the newest ones.
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=scripts/newest.sh
if [ "${1:-}" = nightly ]; then . ./scripts/newest.sh; fi
# Clones in other folders share what is built.
export GOFLAGS="${GOFLAGS:+$GOFLAGS }-trimpath"
./scripts/setup.sh
export POLLUX_E2E=require GORACE=atexit_sleep_ms=10
status=0
race='' short=-short limit=65m parallel='-parallel 6'
if [ "${1:-}" = nightly ]; then race=-race short='' limit=3h parallel=''; export POLLUX_SOAK=30m; fi
# The unit tests wait more than they compute: the checks run at the same time, and four packages,
# those that wait longest first. A package that hangs is ended early enough to print where.
./scripts/check.sh "$@" &
check=$!
# The tests of the commands start hundreds of processes. With the race detector each start takes
# four times as long.
# shellcheck disable=SC2086 # options, or nothing
go test $race $short -vet=off -count=1 -parallel 4 -timeout 10m ./internal/cli &
commands=$!
trap 'kill "$check" "$commands"; exit 1' INT TERM
others=$(go list ./... ./bench/... | grep -v '^pollux/internal/cli$')
# check.sh runs vet.
# shellcheck disable=SC2086 # options, or nothing, and a list
go test -race $short -vet=off -count=1 -p 4 -parallel 4 -timeout 10m ./internal/ide/geminiide/conformance \
	./internal/agent/pool ./internal/companion ./internal/bridge ./internal/view/tmux $others || status=$?
wait "$commands" || status=$?
wait "$check" || { echo "test: scripts/check.sh has failed: its message is above" >&2; exit 1; }
trap - INT TERM
# These wait more than they compute, except with the race detector.
# shellcheck disable=SC2086 # options, or nothing
go test $race $short $parallel -vet=off -count=1 -timeout "$limit" ./e2e/... || status=$?
[ "$status" = 0 ] || [ -z "${newest:-}" ] || printf '%s\n' "a failure may be a difference:$newest" >&2
exit "$status"
