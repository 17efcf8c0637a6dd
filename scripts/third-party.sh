#!/bin/sh
# Writes third_party/jsonschema: the sources of the module in the version that go.mod
# requires, changed by third_party/jsonschema.patch.
set -eu
cd "$(dirname "$0")/.."
module=github.com/santhosh-tekuri/jsonschema/v6
version=$(go list -m -f '{{.Version}}' "$module")
# Outside of this module, because go.mod replaces the module by the copy.
source=$(cd / && GOWORK=off go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
copy=third_party/jsonschema
test -d "$source"
rm -rf "$copy"
cp -R "$source" "$copy"
chmod -R u+w "$copy"
rm -rf "$copy"/.[!.]* "$copy/cmd" "$copy/testdata" "$copy/README.md" "$copy"/*_test.go "$copy"/go.work*
git apply --directory="$copy" third_party/jsonschema.patch
