#!/bin/sh
# Packs the npm package: pack.sh VERSION OUT PLATFORM=BINARY...
# PLATFORM is Node's, such as linux-x64. The tarball is written into OUT.
set -eu
version=$1 out=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/bin" "$tmp/native" "$out"
for pair in "$@"; do
	platform=${pair%%=*}
	binary=${pair#*=}
	mkdir "$tmp/native/$platform"
	case $platform in
	win32-*) cp "$binary" "$tmp/native/$platform/pollux.exe" ;;
	*) install -m 755 "$binary" "$tmp/native/$platform/pollux" ;;
	esac
done
install -m 755 "$here/pollux.js" "$tmp/bin/pollux"
cp "$here/install.js" "$here/package.json" "$repo/LICENSE" "$repo/README.md" "$tmp/"
out=$(cd "$out" && pwd)
cd "$tmp"
npm pkg set version="$version"
npm pack --silent --pack-destination "$out"
