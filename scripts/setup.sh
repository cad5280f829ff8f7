#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Installs what a build of Timewire needs and this machine lacks, and says what it does.
#
#   scripts/setup.sh [demo | lab | test | bench | package | ci] [--then SECONDS]
#
#   demo   the compilers and the tools of the local laboratory (default)
#   lab    demo, and what builds the laboratory's kernel
#   test   demo, cargo-deny (git for its list of advisories), and g++ and python3, whose programs
#          use the library in tests
#   bench  demo, and valgrind
#   package  demo, what makes packages (python3 writes the wheel), and what installs them on a bare
#          system
#   ci     everything, a browser that opens the report, ptp4l for a test of clocks, yanglint, Slurm for
#          a test of arrays, and for fuzzing cargo-fuzz and a nightly compiler, where that can be had
#
#   --then   says first how long all of it will take: this, the build of the command where there
#            is none yet, and so many seconds more
#
# Debian packages come through apt-get and need root; Rust and cargo-deny go into the home directory
# of the caller. With nothing to do it is silent and takes a blink.
# Exit: 0 ready; 2 something is missing and was not installed, the command that installs it printed.
set -eu

CARGO_DENY_VERSION=0.20.2
CARGO_FUZZ_VERSION=0.13.1
RUSTUP_INIT=https://static.rust-lang.org/rustup/rustup-init.sh
OLDEST_CLANG=15

cd "$(dirname "$0")/.."
PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH:/usr/sbin:/sbin"
RUSTUP_AUTO_INSTALL=0 # what is installed is said first
export PATH RUSTUP_AUTO_INSTALL

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 2
}
have() { command -v "$1" >/dev/null 2>&1; }

# Prints the packages that are absent: `absent COMMAND-OR-FILE PACKAGE`.
absent() {
    case $1 in
    /*) [ -e "$1" ] || printf ' %s' "$2" ;;
    *) have "$1" || printf ' %s' "$2" ;;
    esac
}

have_clang() {
    for name in clang $(seq -f 'clang-%g' 30 -1 "$OLDEST_CLANG"); do
        have "$name" || continue
        major=$("$name" -dumpversion 2>/dev/null | cut -d. -f1)
        [ "${major:-0}" -ge "$OLDEST_CLANG" ] && return 0
    done
    return 1
}

missing_packages() {
    absent gcc gcc
    absent /usr/include/stdlib.h libc6-dev
    absent make make
    absent pkg-config pkg-config
    absent /usr/include/libelf.h libelf-dev
    absent /usr/include/zlib.h zlib1g-dev
    absent ip iproute2
    absent ethtool ethtool
    have_clang || printf ' clang'
    if ! have rustup; then
        absent curl curl
        absent /etc/ssl/certs/ca-certificates.crt ca-certificates
    fi
    case $want in lab | ci)
        absent flex flex
        absent bison bison
        absent bc bc
        absent perl perl
        absent zstd zstd
        ;;
    esac
    case $want in lab | package | ci)
        absent tar tar
        absent xz xz-utils
        ;;
    esac
    case $want in test | ci)
        absent git git
        absent c++ g++
        ;;
    esac
    case $want in test | package | ci) absent python3 python3 ;; esac
    case $want in bench | ci) absent valgrind valgrind ;; esac
    case $want in package | ci)
        absent dpkg-shlibdeps dpkg-dev
        absent mmdebstrap mmdebstrap
        ;;
    esac
    case $want in ci)
        absent chromium chromium
        absent ptp4l linuxptp
        absent yanglint libyang-tools
        absent slurmctld slurm-wlm
        absent munged munge
        ;;
    esac
}

# Debian 12 has clang 14 as `clang`, and clang-16 beside it; later releases have a newer `clang`.
with_clang_named() {
    clang=clang
    if apt-cache show clang-16 >/dev/null 2>&1; then clang="clang-16"; fi
    echo "$1" | sed "s/ clang/ $clang/"
}

install_packages() {
    packages=$(missing_packages)
    [ -n "$packages" ] || return 0
    if ! have apt-get; then
        say "(clang: version $OLDEST_CLANG or newer)"
        fail "no apt-get here; install the equivalents of these Debian packages:$packages"
    fi
    if [ "$(id -u)" -ne 0 ]; then
        say "packages are missing and only root may install them; nothing was changed. Run:"
        fail "  sudo apt-get update && sudo apt-get install -y --no-install-recommends$(
            with_clang_named "$packages"
        )"
    fi
    export DEBIAN_FRONTEND=noninteractive
    say "apt-get update"
    apt-get update -qq || fail "apt-get update failed"
    packages=$(with_clang_named "$packages")
    say "apt-get install$packages"
    # shellcheck disable=SC2086  # one word per package is wanted
    apt-get install -y -qq --no-install-recommends $packages >/dev/null ||
        fail "apt-get install failed"
    packages=$(missing_packages)
    [ -z "$packages" ] || fail "still missing after the installation:$packages"
}

channel() { sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml; }

have_toolchain() {
    case $(rustc --version 2>/dev/null) in "rustc $(channel) "*) ;; *) return 1 ;; esac
    have cargo && cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1
}

install_toolchain() {
    have_toolchain && return 0
    if ! have rustup; then
        say "installing rustup from $RUSTUP_INIT into ${CARGO_HOME:-$HOME/.cargo}"
        init=$(mktemp)
        curl --proto '=https' --tlsv1.2 -sSf -o "$init" "$RUSTUP_INIT" || fail "download failed"
        RUSTUP_INIT_SKIP_PATH_CHECK=yes sh "$init" -y -q --no-modify-path --profile minimal \
            --default-toolchain none >/dev/null || fail "rustup-init failed"
        rm -f "$init"
    fi
    say "rustup toolchain install $(channel)"
    rustup --quiet toolchain install "$(channel)" --profile minimal --component clippy,rustfmt \
        --no-self-update || fail "rustup could not install Rust $(channel)"
    have_toolchain || fail "Rust $(channel) is still not what \`rustc\` runs here"
}

install_cargo_deny() {
    have cargo-deny && return 0
    say "cargo install cargo-deny@$CARGO_DENY_VERSION (checks licences and sources; about a minute)"
    # Unoptimised: it runs for a second, and this builds in a third of the time.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=0 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --quiet --locked "cargo-deny@$CARGO_DENY_VERSION" ||
        fail "cargo install cargo-deny failed"
}

# Not having it is no failure: the part of CI that needs it is skipped.
install_cargo_fuzz() {
    if ! rustup run nightly rustc --version >/dev/null 2>&1; then
        say "rustup toolchain install nightly (for fuzzing)"
        if ! rustup --quiet toolchain install nightly --profile minimal --no-self-update; then
            say "no nightly compiler can be had here: no fuzzing"
            return 0
        fi
    fi
    have cargo-fuzz && return 0
    say "cargo install cargo-fuzz@$CARGO_FUZZ_VERSION (a minute)"
    cargo install --quiet --locked "cargo-fuzz@$CARGO_FUZZ_VERSION" ||
        say "cargo install cargo-fuzz failed: no fuzzing"
}

# What is to be done, and about how long it takes.
expect() {
    seconds=$1 steps=
    # One crate after the other, and all that is beside each other.
    compile=$((60 + 400 / $(nproc)))
    step() { seconds=$((seconds + $1)) steps="$steps$2, "; }
    packages=$(missing_packages | wc -w)
    [ "$packages" -eq 0 ] || step 60 "install $packages packages of Debian"
    have_toolchain || step 45 "install Rust"
    program=${CARGO_TARGET_DIR:-target}/release/timewire
    if [ ! -e "$program" ]; then
        step "$compile" "compile"
    elif [ -n "$(find Cargo.lock crates -newer "$program" -print -quit)" ]; then
        step $((compile / 2)) "compile what has changed"
    fi
    printf 'about %d:%02d minutes: %srun\n' $((seconds / 60)) $((seconds % 60)) "$steps" >&2
}

want=${1:-demo}
case $want in
demo | lab | test | bench | package | ci) ;;
*) fail "unknown group \`$want\`; one of: demo, lab, test, bench, package, ci" ;;
esac
case ${2:-} in
--then) expect "$3" ;;
'') ;;
*) fail "\`$2\` is no option; there is --then SECONDS" ;;
esac
install_packages
install_toolchain
case $want in test | ci) install_cargo_deny ;; esac
case $want in ci) install_cargo_fuzz ;; esac
