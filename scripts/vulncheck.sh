#!/bin/sh
# Looks for known vulnerabilities in what we call. It fails if there are some.
# Where the database cannot be reached it says so and passes: then nothing has
# been checked.
set -eu
cd "$(dirname "$0")/.."
db=${GOVULNDB:-https://vuln.go.dev}
case $db in
file:*) ;;
*)
	if ! curl -fsS -m 20 -o /dev/null "$db/index/db.json" 2>/dev/null; then
		echo "vulncheck: NOTHING WAS CHECKED, for $db cannot be reached from here; GOVULNDB names a copy of it" >&2
		exit 0
	fi
	;;
esac
go tool govulncheck -db "$db" ./... ./bench/... ./e2e/...
