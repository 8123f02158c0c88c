# Compiles the Go program on descriptor 3 and becomes it. $1 is the go command. For any POSIX shell.
#
# The compiler is told that the program is main.go of the working directory, by an overlay, so that nothing is written
# there and so that its messages, panics and embedded files are named as if it were. In a module it is in a directory of
# its own, which exists for the compiler only: that way it may import every package of the module.
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/belljar
run=$cache/run/$$
code=$(cat <&3; echo .)
exec 3<&-
code=${code%.}

module=$PWD
while [ -n "$module" ] && [ ! -f "$module/go.mod" ]; do module=${module%/*}; done
# What a program without a module is made of is its code and its environment, but for embedded files.
key=
case $code in
*embed* | *'"C"'*) ;;
*) [ -n "$module" ] || key="go $(export -p) $code" ;;
esac

# A program is its shell's process, and its directory has that number: the others' are no longer needed, but for one that
# was compiled from the same.
[ ! -e "$run" ] || rm -rf "$run"
for old in "$cache"/run/*; do
    [ ! -d "/proc/${old##*/}" ] || continue
    [ -n "$key" ] && [ ! -e "$run" ] && [ -f "$old/key" ] && [ "$(cat "$old/key"; echo .)" = "$key." ] &&
        mv "$old" "$run" 2>/dev/null || rm -rf "$old"
done
[ ! -x "$run/main" ] || exec "$run/main"
mkdir -p "$run" && printf %s "$code" >"$run/main.go" || exit 1

if [ -n "$module" ]; then source=$module/.belljar/main.go; else module=$PWD source=$PWD/main.go; fi
quoted() { case $1 in *[\\\"]*) printf %s "$1" | sed 's/[\\"]/\\&/g' ;; *) printf %s "$1" ;; esac; }
printf '{"Replace":{"%s":"%s"}}' "$(quoted "$source")" "$(quoted "$run/main.go")" >"$run/overlay" || exit 1

# Go's own library, compiled before this sandbox was made. Where nothing else is compiled that is worth keeping, it is the
# cache, though it takes nothing. Else it is there as links, since the cache must take more; and trimmed now, as it says,
# since what cannot be marked as used would be trimmed after some days.
warm=/belljar/go-cache
own=${GOCACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/go-build}
if [ -d "$warm" ] && [ ! -d "$own" ]; then
    if [ -n "$key" ] && [ -z "${GOCACHE-}${GOFLAGS-}${GOOS-}${GOARCH-}${GOAMD64-}${GOEXPERIMENT-}${GODEBUG-}" ]; then
        own=$warm
    else
        mkdir -p "$own" && cp -rs "$warm"/[0-9a-f][0-9a-f] "$own" && date +%s >"$own/trim.txt"
    fi
fi 2>/dev/null

# Without what only debuggers read, as `go run` does it: a third of a small program's time. Collecting garbage less often
# is worth a tenth, and takes no more memory. The number of processors says what the host has, not what this sandbox may
# use; on a large one as many compilers as that would not fit.
go=$1
build() {
    (cd "$module" && GOCACHE=$own GOMAXPROCS=4 GOGC=${GOGC:-400} \
        exec "$go" build "$@" -p 4 -ldflags=-w -overlay "$run/overlay" -o "$run/main" "$source") </dev/null >"$run/log" 2>&1
}
# A module whose go.mod names what its go.sum does not have yet: it is added, as `go mod download` would do it.
if ! build && ! { grep -q -e 'missing go.sum entry' -e 'updates to go.mod needed' "$run/log" && build -mod=mod; }; then
    # Some messages have the overlay's name for it, and some that of the file that it stands for.
    sed "/^# command-line-arguments\$/d; s|[^[:space:]:]*/run/$$/main\.go|main.go|g; s|^\./||; s|^\.belljar/||" \
        "$run/log" >&2
    # What go says where it must not fetch, or cannot.
    ! grep -q -e 'GOPROXY=off' -e 'dial tcp' -e 'proxyconnect' -e '403 Forbidden' "$run/log" ||
        echo 'hint: modules are fetched in a sandbox that may reach the registries: ask for network: ["packages"]' >&2
    exit 1
fi
[ -x "$run/main" ] || { echo 'main.go: this is not package main, so there is nothing to run' >&2; exit 1; }
[ -z "$key" ] || printf %s "$key" >"$run/key"
exec "$run/main"
