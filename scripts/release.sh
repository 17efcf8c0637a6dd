#!/bin/sh
# Builds a release into dist: archives with static binaries for three systems on
# two processors, checksums, SBOMs, .deb, .rpm, the npm package, server.json. The
# version is that of the tag, or of a snapshot. The tools are pinned and come
# from the Go module proxy, into .cache/tools.
set -eu
cd "$(dirname "$0")/.."
tools=$PWD/.cache/tools
tool() { # NAME PACKAGE@VERSION
	[ -e "$tools/.done-$1-${2##*@}" ] && return
	GOBIN=$tools GOFLAGS= go install "$2"
	touch "$tools/.done-$1-${2##*@}"
}
mkdir -p "$tools"
tool goreleaser github.com/goreleaser/goreleaser/v2@v2.14.0
tool syft github.com/anchore/syft/cmd/syft@v1.54.1
PATH=$tools:$PATH

version=$(git describe --tags --exact-match 2>/dev/null | sed 's/^v//') || true
if [ -n "$version" ] && [ -n "$(git status --porcelain)" ]; then
	echo "release: the working tree differs from the tag v$version: commit or stash the changes" >&2
	exit 1
fi
[ -n "$version" ] || version=0.1.0-dev.$(git rev-list --count HEAD)
export POLLUX_VERSION="$version" SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
# Only the root module is released: go.work is for development.
export GOWORK=off
goreleaser release --snapshot --clean

bin() { echo dist/pollux_"$1"*/pollux"${2:-}"; }
./release/npm/pack.sh "$version" dist \
	linux-x64="$(bin linux_amd64)" linux-arm64="$(bin linux_arm64)" \
	darwin-x64="$(bin darwin_amd64)" darwin-arm64="$(bin darwin_arm64)" \
	win32-x64="$(bin windows_amd64 .exe)" win32-arm64="$(bin windows_arm64 .exe)"
sed "s/\"0\.0\.0\"/\"$version\"/" release/server.json >dist/server.json
(cd dist && sha256sum pollux-gemini-"$version".tgz server.json >>pollux_"$version"_checksums.txt)
cd dist && ls -l -- *.tar.gz *.zip *.deb *.rpm *.tgz *.json *.txt | awk '{ printf "%10d  %s\n", $5, $9 }'
