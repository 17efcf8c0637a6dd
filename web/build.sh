#!/bin/sh
# Builds the review page into internal/view/web/page, which the binary embeds.
# Needs npm to download CodeMirror; go.mod pins esbuild.
set -eu
cd "$(dirname "$0")"
npm ci --no-audit --no-fund --loglevel=error
npx tsc --noEmit
out=../internal/view/web/page
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
for file in main.ts:app.js app.css:app.css; do
	go tool esbuild "src/${file%:*}" --bundle --minify --target=es2022,chrome123,firefox120,safari17.5 --charset=utf8 \
		--legal-comments=none --log-level=warning --outfile="$new/${file#*:}"
done
cp src/index.html "$new"
# The same file is not written again: a compiler may read it now.
for file in index.html app.js app.css; do
	cmp -s "$new/$file" "$out/$file" || cp "$new/$file" "$out"
done
