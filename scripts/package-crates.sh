#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Packs the crates as a registry wants them, and checks that what is packed compiles without the
# repository around it.
#
#   scripts/package-crates.sh OUT
#
#   OUT  a target directory: gets the crates in package/, and what is compiled of them
#
# CARGO, and TOOLCHAIN (`+1.88`, say), name what compiles. Nothing is published.
# Exit: 0 all is well; 1 a crate cannot be packed, or does not compile.
set -eu

fail() {
    echo "package-crates: $*" >&2
    exit 1
}
[ $# -eq 1 ] && [ -n "$1" ] || fail "usage: $0 OUT"
cargo=${CARGO:-cargo}
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
rm -rf "$out/package"
"$cargo" package --quiet --workspace --exclude xtask --no-verify --allow-dirty \
    --target-dir "$out" 2>"$out/said" || {
    cat "$out/said" >&2
    fail "cargo refused"
}

# They are found in each other's place, as they would be in a registry.
apart=$(mktemp -d)
trap 'rm -rf "$apart"' EXIT
cp Cargo.lock "$apart/"
printf '[workspace]\nresolver = "3"\nmembers = ["timewire-*"]\n\n[patch.crates-io]\n' \
    >"$apart/Cargo.toml"
for crate in "$out"/package/*.crate; do
    tar --extract --gzip --file "$crate" --directory "$apart"
    name=$(basename "$crate" | sed 's/-[0-9.]*\.crate$//')
    for file in LICENSE-APACHE LICENSE-MIT; do
        [ -s "$apart/$(basename "$crate" .crate)/$file" ] || fail "$name has no $file"
    done
    printf '%s = { path = "%s" }\n' "$name" "$(basename "$crate" .crate)" >>"$apart/Cargo.toml"
done
# shellcheck disable=SC2086  # no word where none is set
(cd "$apart" && "$cargo" ${TOOLCHAIN:-} check --quiet --workspace --target-dir "$out") ||
    fail "what is packed does not compile"
set -- "$out"/package/*.crate
echo "$# crates"
