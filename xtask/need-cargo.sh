# Sees to it that cargo (1.89 or newer) and a linker are there; says exactly what to install where they are not.
# Run by the Makefile before every target; everything after this is Rust.
oldest=89

advise() {
    echo "error: $1" >&2
    echo "  next: on Debian 12 run" >&2
    echo "          apt-get update && apt-get install -y cargo-web rustc-web rustfmt-web rust-web-clippy gcc libc6-dev" >&2
    echo "        (they conflict with the older packages 'cargo' and 'rustc'; elsewhere: https://rustup.rs)," >&2
    echo "        then the same make command again" >&2
    exit 1
}

command -v cargo >/dev/null 2>&1 || {
    # A toolchain from rustup that this shell has not been told about.
    [ -x "$HOME/.cargo/bin/cargo" ] || advise "building Brindle needs cargo 1.$oldest or newer, and there is no cargo here"
    advise "cargo is in $HOME/.cargo/bin, which is not in PATH (or: . \"\$HOME/.cargo/env\")"
}
version=$(cargo --version | sed -n 's/^cargo \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
major=${version% *}
minor=${version#* }
[ -n "$version" ] || advise "'cargo --version' did not answer with a version"
if [ "$major" -eq 1 ] && [ "$minor" -lt "$oldest" ]; then
    advise "building Brindle needs cargo 1.$oldest or newer; this is $(cargo --version)"
fi

# Rust links with cc: the one package that has to be there before any Rust can run.
command -v cc >/dev/null 2>&1 || {
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing gcc and libc6-dev (Rust links with cc) ..." >&2
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends gcc libc6-dev; } \
            >/dev/null || advise "cannot install gcc"
    else
        advise "no C compiler ('cc') for linking"
    fi
}
