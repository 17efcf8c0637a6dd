#!/bin/sh
# Fuzzes each parser for the time given.
set -eu
cd "$(dirname "$0")/.."
for target in adapter:FuzzStream discovery:FuzzParse ideserver:FuzzParseOpenDiff gemini:FuzzTranscript gemini:FuzzGuard gemini:FuzzACPStream bridge:FuzzBlocks hunk:FuzzReplace tui:FuzzUndo; do
	go test -run '^$' -fuzz "^${target#*:}\$" -fuzztime "${1:-60s}" "./internal/${target%:*}"
done
