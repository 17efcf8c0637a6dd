#!/bin/sh
# Checks the plugins with the editors' own tools: StyLua, Vim's compiler, the
# help files, Emacs's byte compiler and checkdoc. None may print a warning.
set -eu
cd "$(dirname "$0")/../editors"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
	echo "check: $1" >&2
	exit 1
}

node ../scripts/stylua.mjs $(find nvim -name '*.lua') ../scripts/globals.lua
HOME=$tmp FILES=$(find nvim -name '*.lua') nvim --headless --clean -c 'luafile ../scripts/globals.lua' -c 'qa!' || fail "unknown names"

# Compile every Vim function. Vim itself compiles them on their first call.
cp -r vim "$tmp/rtp"
for f in "$tmp"/rtp/autoload/pollux.vim "$tmp"/rtp/autoload/pollux/*.vim; do
	echo defcompile >>"$f"
	HOME=$tmp vim -es -u NONE -N --cmd "set rtp^=$tmp/rtp" --cmd "redir! > $tmp/errors" \
		-c "source $f" -c 'redir END' -c 'qa!' </dev/null || true
	! grep -q . "$tmp/errors" || { cat "$tmp/errors"; fail "$(basename "$f") does not compile"; }
done

for e in nvim vim; do
	cp -r "$e/doc" "$tmp/doc-$e"
	HOME=$tmp $e -es -u NONE -c "helptags $tmp/doc-$e" -c 'qa!' </dev/null >"$tmp/out" 2>&1 || { cat "$tmp/out"; fail "$e/doc"; }
	awk 'length > 79 { print FILENAME ":" FNR ": over 79 columns"; bad = 1 } END { exit bad }' "$tmp/doc-$e/pollux.txt" || fail "$e/doc"
done

cp emacs/pollux.el "$tmp"
cd "$tmp"
HOME=$tmp emacs -Q --batch --eval '(setq byte-compile-error-on-warn t)' -f batch-byte-compile pollux.el 2>out || { cat out; fail "pollux.el has warnings"; }
HOME=$tmp emacs -Q --batch --eval '(progn (require (quote checkdoc))
  (let ((checkdoc-create-error-function
         (lambda (text start &rest _) (message "pollux.el:%d: %s" (line-number-at-pos start) text) nil)))
    (find-file "pollux.el") (checkdoc-current-buffer t)))' 2>out
! grep pollux.el: out || fail "checkdoc"
