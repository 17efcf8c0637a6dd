#!/bin/sh
# Runs each fuzz test: fuzz.sh DURATION, 60s by default.
set -eu
cd "$(dirname "$0")/.."
git grep -o '^func Fuzz[A-Za-z0-9]*' -- 'internal/*_test.go' | while IFS=: read -r file func; do
	go test -run '^$' -fuzz "^${func#func }\$" -fuzztime "${1:-60s}" "./$(dirname "$file")" </dev/null
done
