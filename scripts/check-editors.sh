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

lua=$(find vim -name '*.lua')
node ../scripts/stylua.mjs $lua ../scripts/globals.lua
HOME=$tmp FILES=$lua nvim --headless --clean -c 'luafile ../scripts/globals.lua' -c 'qa!' || fail "unknown names"

# These commands take a comment at the end of their line for a part of their arguments.
! grep -nE '^[[:space:]]*(execute|echo[a-z]*|throw|return|normal!?) (.*[[:space:]])?"[[:space:]][^"]*$' \
	$(grep -rL '^vim9script' vim --include='*.vim') || fail "comments after commands that can take none"

# Load every script, and compile the functions in Vim9 script, which Vim compiles on their
# first call.
cp -r vim "$tmp/rtp"
for f in $(grep -rl '^vim9script' "$tmp/rtp"); do echo defcompile >>"$f"; done
for e in nvim vim; do
	for f in $(find "$tmp/rtp/autoload" -name '*.vim'); do
		case $e:$f in nvim:*/vim.vim | nvim:*/vim/* | vim:*/nvim.vim | vim:*/nvim/*) continue ;; esac
		HOME=$tmp $e -es -u NONE -N --cmd "set rtp^=$tmp/rtp" --cmd "redir! > $tmp/errors" \
			-c "source $f" -c 'redir END' -c 'qa!' </dev/null || true
		! grep -q . "$tmp/errors" || { cat "$tmp/errors"; fail "$(basename "$f") does not load in $e"; }
	done
	HOME=$tmp $e -es -u NONE -c "helptags $tmp/rtp/doc" -c 'qa!' </dev/null >"$tmp/out" 2>&1 || { cat "$tmp/out"; fail "vim/doc"; }
done
# Both adapters have each function that the shared scripts call.
for name in $(grep -rhoE "Host\('[A-Za-z#]+" vim/autoload | cut -d "'" -f 2); do
	file=${name%%#*}
	case $name in *#*) file=/$file.vim ;; *) file=.vim ;; esac
	grep -q "^export def ${name##*#}(" "vim/autoload/pollux/vim$file" || fail "vim$file has no ${name##*#}()"
	grep -q "^function! pollux#nvim#$name(" "vim/autoload/pollux/nvim$file" || fail "nvim$file has no $name()"
done
awk 'length > 79 { print FILENAME ":" FNR ": over 79 columns"; bad = 1 } END { exit bad }' vim/doc/pollux.txt || fail "vim/doc"

cp emacs/pollux.el "$tmp"
cd "$tmp"
HOME=$tmp emacs -Q --batch --eval '(setq byte-compile-error-on-warn t)' -f batch-byte-compile pollux.el 2>out || { cat out; fail "pollux.el has warnings"; }
HOME=$tmp emacs -Q --batch --eval '(progn (require (quote checkdoc))
  (let ((checkdoc-create-error-function
         (lambda (text start &rest _) (message "pollux.el:%d: %s" (line-number-at-pos start) text) nil)))
    (find-file "pollux.el") (checkdoc-current-buffer t)))' 2>out
! grep pollux.el: out || fail "checkdoc"
