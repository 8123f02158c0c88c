# Compiles the Go program on descriptor 3 and becomes it. $1 is the go command. For any POSIX shell.
#
# The compiler is told that the program is main.go of the working directory, by an overlay, so that nothing is written
# there and so that its messages, panics and embedded files are named as if it were. In a module it is in a directory of
# its own, which exists for the compiler only: that way it may import every package of the module.
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/belljar
run=$cache/run/$$
# A program is its shell's process, and its directory has that number: the others' are no longer needed.
for old in "$cache"/run/*; do
    [ -d "/proc/${old##*/}" ] && [ "$old" != "$run" ] || rm -rf "$old"
done
mkdir -p "$run" && cat <&3 >"$run/main.go" || exit 1
exec 3<&-

module=$PWD
while [ -n "$module" ] && [ ! -f "$module/go.mod" ]; do module=${module%/*}; done
if [ -n "$module" ]; then source=$module/.belljar/main.go; else module=$PWD source=$PWD/main.go; fi
quoted() { printf %s "$1" | sed 's/[\\"]/\\&/g'; }
printf '{"Replace":{"%s":"%s"}}' "$(quoted "$source")" "$(quoted "$run/main.go")" >"$run/overlay" || exit 1

# Go's own library, compiled before this sandbox was made. As links, since the cache must take more; and trimmed now, as it
# says, since what cannot be marked as used would be trimmed after some days.
warm=/belljar/go-cache
GOCACHE=${GOCACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/go-build}
export GOCACHE
if [ -d "$warm" ] && [ ! -d "$GOCACHE" ]; then
    mkdir -p "$GOCACHE" && cp -rs "$warm"/[0-9a-f][0-9a-f] "$GOCACHE" && date +%s >"$GOCACHE/trim.txt"
fi 2>/dev/null

# The number of processors says what the host has, not what this sandbox may use; on a large one as many compilers as
# that would not fit.
if ! (cd "$module" && GOMAXPROCS=4 exec "$1" build -p 4 -overlay "$run/overlay" -o "$run/main" "$source") \
    </dev/null >"$run/log" 2>&1; then
    # Some messages have the overlay's name for it, and some that of the file that it stands for.
    sed "/^# command-line-arguments\$/d; s|[^[:space:]:]*/run/$$/main\.go|main.go|g; s|^\./||; s|^\.belljar/||" \
        "$run/log" >&2
    exit 1
fi
[ -x "$run/main" ] || { echo 'main.go: this is not package main, so there is nothing to run' >&2; exit 1; }
exec "$run/main"
