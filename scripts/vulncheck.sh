#!/bin/sh
# Checks the code that we call for known vulnerabilities, and fails if it finds
# one. If the database cannot be reached, it says so and passes without a check.
set -eu
cd "$(dirname "$0")/.."
db=${GOVULNDB:-https://vuln.go.dev}
case $db in
file:*) ;;
*)
	if ! curl -fsS -m 20 -o /dev/null "$db/index/db.json" 2>/dev/null; then
		echo "vulncheck: NOTHING WAS CHECKED: cannot reach $db; set GOVULNDB to a copy of the database" >&2
		exit 0
	fi
	;;
esac
go tool govulncheck -db "$db" ./... ./bench/... ./e2e/...
