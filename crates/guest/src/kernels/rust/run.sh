# Compiles the Rust program on descriptor 3 and becomes it. $1 is rustc. For any POSIX shell.
#
# In a Cargo package it is compiled as one more example of that package, with its library, dependencies and edition. For
# that the package is copied as links into a directory of ours, so that nothing is written in its own. Whether crates may
# be fetched is the environment's to say (CARGO_NET_OFFLINE).
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/belljar
run=$cache/run/$$
code=$(cat <&3; echo .)
exec 3<&-
code=${code%.}

rustc=$1 cargo=${1%/*}/cargo linker=
package=$PWD
while [ -n "$package" ] && [ ! -f "$package/Cargo.toml" ]; do package=${package%/*}; done
if [ -n "$package" ]; then
    [ -x "$cargo" ] && grep -q '^[[:space:]]*\[package\]' "$package/Cargo.toml" || package=
fi
# What a program without a package is made of is its code and its environment, but for included files.
key=
case $code in
*include* | *path*) ;;
*) [ -n "$package" ] || key="rust $(export -p) $code" ;;
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
mkdir -p "$run" && printf %s "$code" >"$run/main.rs" || exit 1

# $1 is the edition.
compile() {
    (cd "$run" && exec "$rustc" --edition "$1" -A warnings -C debuginfo=0 -C "incremental=$cache/rust" $linker $dynamic \
        -o main main.rs) </dev/null >"$run/log" 2>&1
}

# In the mirror of the package, which has one build at a time.
compile_in_package() {
    find . -maxdepth 1 -type l -exec rm -f {} +
    for entry in "$package"/* "$package"/.[!.]*; do
        case ${entry##*/} in
        examples | target) ;;
        *) [ -e "$entry" ] && ln -sf "$entry" . ;;
        esac
    done
    mkdir -p examples && cp "$run/main.rs" examples/main.rs &&
        CARGO_TARGET_DIR=$cache/cargo RUSTC=$rustc RUSTFLAGS="-A warnings $linker" CARGO_PROFILE_DEV_DEBUG=0 \
            "$cargo" build --quiet --jobs 4 --example main </dev/null &&
        cp "$cache/cargo/debug/examples/main" "$run/main"
}

command -v mold >/dev/null 2>&1 && linker='-C link-arg=-fuse-ld=mold'
# The library as it lies beside the compiler is not copied into the program: a quarter of a small one's time. It brings its
# own allocator, and does not fit what is no ordinary program. Where there are several, they are for several machines.
dynamic=
set -- "${rustc%/bin/rustc}"/lib/rustlib/*/lib/libstd-*.so
case $code in
*allocator* | *no_std* | *no_main* | *crate_type* | *'extern crate'*) ;;
*) case $#${1%/*} in
    1*[[:space:],]*) ;;
    1*) [ ! -f "$1" ] || dynamic="-C prefer-dynamic -C link-arg=-Wl,-rpath,${1%/*}" ;;
    esac ;;
esac
if [ -n "$package" ]; then
    mirror=$cache/mirror/$(printf %s "$package" | tr / %)
    mkdir -p "$mirror" || exit 1
    (cd "$mirror" && { flock 9 2>/dev/null || :; } && compile_in_package) 9>"$mirror.lock" >"$run/log" 2>&1
elif ! compile 2024; then
    # Before Rust 1.85 there was no edition 2024.
    ! grep -q 'edition 2024 is unstable\|argument for .--edition' "$run/log" || compile 2021
fi
if [ ! -x "$run/main" ]; then
    cat "$run/log" >&2
    # What cargo says where it must not fetch, or cannot.
    if [ -n "$package" ] && grep -q -e '--offline' -e 'offline mode' -e 'resolve host' -e 'tunnel failed' \
        -e 'failed to download' "$run/log"; then
        echo 'hint: crates are fetched in a sandbox that may reach the registries: ask for network: ["packages"]' >&2
    elif [ -z "$package" ] && grep -q -e "can't find crate" -e 'missing crate' -e 'unlinked crate' "$run/log"; then
        echo 'hint: crates are those of a Cargo.toml in the working directory; this program has none' >&2
    fi
    exit 1
fi
[ -z "$key" ] || printf %s "$key" >"$run/key"
exec "$run/main"
