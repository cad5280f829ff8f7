#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes Debian packages of what cargo built, with the tools of Debian: `timewire` (the command, its
# manual pages and completions, the agent's unit, the scenarios) and `libtimewire-dev` (headers,
# library, Python module).
#
#   scripts/package.sh BUILT OUT
#
#   BUILT  the directory with timewire, libtimewire.so and libtimewire.a: target/release
#   OUT    gets the packages, what each is made of (NAME.cdx.json, also in the package) and
#          SHA256SUMS; earlier ones in it are replaced
#
# The same tree and the same binaries give the same bytes: times are those of the last commit, or
# of SOURCE_DATE_EPOCH.
# Exit: 0 done; 1 something is missing, or a tool refused.
set -eu

fail() {
    echo "package: $*" >&2
    exit 1
}
[ $# -eq 2 ] && [ -n "$1" ] && [ -n "$2" ] || fail "usage: $0 BUILT OUT"
here=$(cd "$(dirname "$0")/.." && pwd)
built=$(cd "$1" && pwd) || fail "there is no $1"
mkdir -p "$2"
out=$(cd "$2" && pwd)
for tool in dpkg-deb dpkg-shlibdeps strip gzip; do
    command -v "$tool" >/dev/null || fail "no \`$tool\` here; scripts/setup.sh package installs it"
done
cargo=${CARGO:-cargo}
command -v "$cargo" >/dev/null || fail "no \`$cargo\` here, which says what the packages are made of"
for file in timewire libtimewire.so libtimewire.a; do
    [ -f "$built/$file" ] || fail "no $built/$file; \`make package\` builds it"
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -n 1)
architecture=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null ||
    stat -c %Y "$here/CHANGELOG.md")}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# `documents TREE NAME`: what every package has to have.
documents() {
    mkdir -p "$1/usr/share/doc/$2"
    cp "$here/packaging/deb/copyright" "$1/usr/share/doc/$2/copyright"
    gzip -9n <"$here/CHANGELOG.md" >"$1/usr/share/doc/$2/changelog.gz"
    (cd "$here" && "$cargo" run --quiet --package xtask -- sbom "$2") \
        >"$1/usr/share/doc/$2/$2.cdx.json" || fail "what $2 is made of is not known"
    cp "$1/usr/share/doc/$2/$2.cdx.json" "$out/$2_${version}_$architecture.cdx.json"
}

# `libraries FILE...`: the packages that the dynamic linker needs.
libraries() {
    mkdir -p "$work/control/debian"
    : >"$work/control/debian/control"
    (cd "$work/control" && dpkg-shlibdeps -O "$@" 2>"$work/shlibdeps") ||
        fail "dpkg-shlibdeps: $(cat "$work/shlibdeps")"
}

# `pack NAME DEPENDS`: the control file from its template, and the package.
pack() {
    tree=$work/$1
    mkdir -p "$tree/DEBIAN"
    size=$(du -sk --apparent-size --exclude=DEBIAN "$tree" | cut -f1)
    sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" \
        -e "s/@DEPENDS@/$2/" -e "s/@SIZE@/$size/" \
        "$here/packaging/deb/$1.control" >"$tree/DEBIAN/control"
    for script in postinst prerm postrm; do
        from=$here/packaging/deb/$1.$script
        [ ! -f "$from" ] || install -m 755 "$from" "$tree/DEBIAN/$script"
    done
    find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz --build "$tree" \
        "$out/$1_${version}_$architecture.deb" >/dev/null || fail "dpkg-deb refused"
}

rm -f "$out"/timewire_*.deb "$out"/libtimewire-dev_*.deb "$out"/*.cdx.json

tree=$work/timewire
mkdir -p "$tree/usr/bin" "$tree/usr/lib/systemd/system" "$tree/usr/share/timewire" \
    "$tree/usr/share/bash-completion/completions" "$tree/usr/share/zsh/vendor-completions" \
    "$tree/usr/share/fish/vendor_completions.d" "$tree/usr/share/man"
install -m 755 "$built/timewire" "$tree/usr/bin/timewire"
strip --strip-all "$tree/usr/bin/timewire"
install -m 644 "$here"/packaging/systemd/*.service "$tree/usr/lib/systemd/system/"
cp -R "$here/scenarios" "$tree/usr/share/timewire/scenarios"
mkdir -p "$tree/usr/share/timewire/grafana"
install -m 644 "$here"/packaging/grafana/*.json "$tree/usr/share/timewire/grafana/"
command=$tree/usr/bin/timewire
"$command" completions bash >"$tree/usr/share/bash-completion/completions/timewire"
"$command" completions zsh >"$tree/usr/share/zsh/vendor-completions/_timewire"
"$command" completions fish >"$tree/usr/share/fish/vendor_completions.d/timewire.fish"
"$command" man --into "$tree/usr/share/man/man1"
gzip -9n "$tree"/usr/share/man/man1/*.1
documents "$tree" timewire
pack timewire "$(libraries "$command" | sed -n 's/^shlibs:Depends=//p')"

tree=$work/libtimewire-dev
"$here/scripts/stage-library.sh" "$built" "$tree/usr" >/dev/null
strip --strip-unneeded "$tree"/usr/lib/libtimewire.so.*.*
strip --strip-debug "$tree/usr/lib/libtimewire.a"
# One package each: the directory of the examples is this one's.
mkdir -p "$tree/usr/share/doc/libtimewire-dev"
mv "$tree/usr/share/timewire/examples" "$tree/usr/share/doc/libtimewire-dev/examples"
mkdir -p "$tree/usr/lib/python3/dist-packages"
mv "$tree/usr/share/timewire/timewire.py" "$tree/usr/lib/python3/dist-packages/timewire.py"
rmdir "$tree/usr/share/timewire"
documents "$tree" libtimewire-dev
library=$(find "$tree/usr/lib" -type f -name 'libtimewire.so.*')
pack libtimewire-dev "$(libraries "$library" | sed -n 's/^shlibs:Depends=//p')"

(cd "$out" && sha256sum ./*.deb ./*.cdx.json >SHA256SUMS)
for package in "$out"/*.deb; do
    echo "$package"
done
