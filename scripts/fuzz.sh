#!/bin/sh
# Fuzzes each parser for the time given.
set -eu
cd "$(dirname "$0")/.."
for target in editor:FuzzStream ide/geminiide:FuzzParse ide/geminiide:FuzzParseOpenDiff agent/gemini:FuzzTranscript agent/gemini:FuzzEscape agent/acp:FuzzACPStream bridge/change:FuzzBlocks hunk:FuzzReplace view/term:FuzzUndo; do
	go test -run '^$' -fuzz "^${target#*:}\$" -fuzztime "${1:-60s}" "./internal/${target%:*}"
done
