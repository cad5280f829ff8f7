#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Links the command without shared libraries, of what cargo builds for the usual one: only the last
# crate is compiled twice. The C library is the GNU one; why: docs/src/adr/0036-static-command.md
#
#   scripts/link-static.sh BUILT
#
#   BUILT  cargo's directory of the profile `release`: target/release. It gets static/timewire, and
#          static/archives, a line for each archive of C code that is linked.
#
# BUILT/timewire is the static one afterwards, until cargo builds the usual one again.
# Exit: 0 done; 1 something is missing, or the result still wants a shared library.
set -eu

fail() {
    echo "link-static: $*" >&2
    exit 1
}
[ $# -eq 1 ] && [ -n "$1" ] || fail "usage: $0 BUILT"
cargo=${CARGO:-cargo}
cc=${CC:-cc}
for tool in "$cargo" "$cc" pkg-config readelf; do
    command -v "$tool" >/dev/null || fail "no \`$tool\` here; scripts/setup.sh package installs it"
done
mkdir -p "$1"
built=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
into=$built/static
rm -rf "$into"
mkdir -p "$into/lib"

# What libelf needs differs between its versions. In this directory the linker finds archives and
# nothing else, so that it takes no shared library of the same name.
archives=
for name in $(pkg-config --static --libs-only-l libelf zlib); do
    archive=$("$cc" -print-file-name="lib${name#-l}.a")
    [ -f "$archive" ] || fail "there is no lib${name#-l}.a, which goes into the program"
    [ ! -e "$into/lib/${archive##*/}" ] || continue
    ln -s "$archive" "$into/lib/"
    archives="$archives $archive"
done
words="-C target-feature=+crt-static -L native=$into/lib"
for archive in $archives; do words="$words -C link-arg=$archive"; done
# shellcheck disable=SC2086  # one word each is wanted
"$cargo" rustc --quiet --release --package timewire-cli --bin timewire -- $words ||
    fail "cargo refused"
cp "$built/timewire" "$into/timewire"
for name in libc.a libgcc_eh.a; do archives="$archives $("$cc" -print-file-name="$name")"; done
# shellcheck disable=SC2086
realpath $archives >"$into/archives"
readelf --wide --program-headers --dynamic "$into/timewire" >"$into/headers"
if grep -E 'INTERP|NEEDED' "$into/headers" >&2; then fail "it wants what is named above"; fi
