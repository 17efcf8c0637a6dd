#!/bin/sh
# Runs a command that would be silent for long, and shows on a terminal how long it has
# run and how many steps it has printed. It prints the command's output only if the
# command fails. progress.sh WHAT COMMAND...
set -eu
what=$1
shift
log=$(mktemp)
pid=
trap 'rm -f "$log"' EXIT
# A command in the background ignores Ctrl-C.
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; exit 130' INT TERM
line() { [ ! -t 2 ] || printf '\r\033[K%s' "$1" >&2; }
[ -t 2 ] || echo "$what ..." >&2

"$@" >"$log" 2>&1 &
pid=$!
start=$(date +%s)
now=$start
while kill -0 "$pid" 2>/dev/null; do
	steps=$(wc -l <"$log")
	line "$what: $((now - start)) s, $((steps)) steps"
	sleep 0.5
	now=$(date +%s)
done
line ''
if ! wait "$pid"; then
	cat "$log" >&2
	echo "$what: failed" >&2
	exit 1
fi
[ $((now - start)) -lt 3 ] || echo "$what: done in $((now - start)) s" >&2
