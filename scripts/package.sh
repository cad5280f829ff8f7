#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Makes packages of what cargo built, with the tools of Debian: the packages `timewire` (the
# command, its manual pages and completions, the agent's unit, the scenarios) and `libtimewire-dev`
# (headers, library, Python module), an archive of the static command for any Linux, a wheel of
# the Python module for pip, and an archive of what debuggers need of all these.
#
#   scripts/package.sh BUILT OUT
#
#   BUILT  the directory with timewire, libtimewire.so, libtimewire.a, and static/ of
#          scripts/link-static.sh: target/release
#   OUT    gets the packages, what each is made of (.cdx.json, also in the package) and
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
for tool in dpkg-deb dpkg-shlibdeps objcopy readelf strip gzip tar xz python3; do
    command -v "$tool" >/dev/null || fail "no \`$tool\` here; scripts/setup.sh package installs it"
done
cargo=${CARGO:-cargo}
command -v "$cargo" >/dev/null || fail "no \`$cargo\` here, which says what the packages are made of"
for file in timewire libtimewire.so libtimewire.a static/timewire static/archives; do
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

# `bill NAME [LIBRARY...]`: what a package is made of.
bill() {
    (cd "$here" && "$cargo" run --quiet --package xtask -- sbom "$@") ||
        fail "what $1 is made of is not known"
}

# `documents TREE NAME`: what every Debian package has to have.
documents() {
    mkdir -p "$1/usr/share/doc/$2"
    cp "$here/packaging/deb/copyright" "$1/usr/share/doc/$2/copyright"
    gzip -9n <"$here/CHANGELOG.md" >"$1/usr/share/doc/$2/changelog.gz"
    bill "$2" >"$1/usr/share/doc/$2/$2.cdx.json"
    cp "$1/usr/share/doc/$2/$2.cdx.json" "$out/$2_${version}_$architecture.cdx.json"
}

# `pages COMMAND SHARE ZSH`: what the command says of itself, and the files that come with it; zsh
# has another directory for what a distribution brings.
pages() {
    mkdir -p "$2/bash-completion/completions" "$2/$3" "$2/fish/vendor_completions.d" "$2/man" \
        "$2/timewire/grafana"
    cp -R "$here/scenarios" "$2/timewire/scenarios"
    install -m 644 "$here"/packaging/grafana/*.json "$2/timewire/grafana/"
    "$1" completions bash >"$2/bash-completion/completions/timewire"
    "$1" completions zsh >"$2/$3/_timewire"
    "$1" completions fish >"$2/fish/vendor_completions.d/timewire.fish"
    "$1" man --into "$2/man/man1"
    gzip -9n "$2"/man/man1/*.1
}

# `libraries FILE...`: the packages that the dynamic linker needs.
libraries() {
    mkdir -p "$work/control/debian"
    : >"$work/control/debian/control"
    (cd "$work/control" && dpkg-shlibdeps -O "$@" 2>"$work/shlibdeps") ||
        fail "dpkg-shlibdeps: $(cat "$work/shlibdeps")"
}

# `apart FILE PATH`: function names and line tables of what is installed as PATH go to a file of
# their own, which debuggers find by the name that is left in FILE.
debug=timewire-$version-$(uname -m)-linux-debug
apart() {
    readelf --sections --wide "$1" | grep '\.debug_line ' >/dev/null ||
        fail "$1 has no line tables; \`make package\` builds it with them"
    file=$work/$debug/usr/lib/debug$2.debug
    mkdir -p "${file%/*}"
    objcopy --only-keep-debug --compress-debug-sections=zlib "$1" "$file" && chmod 644 "$file" && strip --strip-unneeded "$1" &&
        objcopy --add-gnu-debuglink="$file" "$1" || fail "the symbols of $2 cannot be put apart"
}

# `archive NAME`: a tree, as tar has it.
archive() {
    tar --create --directory "$work" --sort=name --format=gnu --numeric-owner --owner=0 --group=0 \
        --mode=u+rw,go+r,go-w --mtime="@$SOURCE_DATE_EPOCH" "$1"
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

rm -f "$out"/*.deb "$out"/*.tar.?z "$out"/*.whl "$out"/*.cdx.json

tree=$work/timewire
mkdir -p "$tree/usr/bin" "$tree/usr/lib/systemd/system"
install -m 755 "$built/timewire" "$tree/usr/bin/timewire"
apart "$tree/usr/bin/timewire" /usr/bin/timewire
install -m 644 "$here"/packaging/systemd/*.service "$tree/usr/lib/systemd/system/"
command=$tree/usr/bin/timewire
pages "$command" "$tree/usr/share" zsh/vendor-completions
documents "$tree" timewire
pack timewire "$(libraries "$command" | sed -n 's/^shlibs:Depends=//p')"

tree=$work/libtimewire-dev
"$here/scripts/stage-library.sh" "$built" "$tree/usr" >/dev/null
library=$(find "$tree/usr/lib" -type f -name 'libtimewire.so.*')
apart "$library" "${library#"$tree"}"
strip --strip-debug "$tree/usr/lib/libtimewire.a"
# One package each: the directory of the examples is this one's.
mkdir -p "$tree/usr/share/doc/libtimewire-dev"
mv "$tree/usr/share/timewire/examples" "$tree/usr/share/doc/libtimewire-dev/examples"
mkdir -p "$tree/usr/lib/python3/dist-packages"
mv "$tree/usr/share/timewire/timewire.py" "$tree/usr/lib/python3/dist-packages/timewire.py"
rmdir "$tree/usr/share/timewire"
documents "$tree" libtimewire-dev
pack libtimewire-dev "$(libraries "$library" | sed -n 's/^shlibs:Depends=//p')"

# The static command, in a tree for any prefix.
name=timewire-$version-$(uname -m)-linux-static
tree=$work/$name
mkdir -p "$tree/bin" "$tree/lib/systemd/system" "$tree/share/doc/timewire"
install -m 755 "$built/static/timewire" "$tree/bin/timewire"
apart "$tree/bin/timewire" /usr/local/bin/timewire
for unit in "$here"/packaging/systemd/*.service; do
    sed 's|/usr/bin/|/usr/local/bin/|' "$unit" >"$tree/lib/systemd/system/${unit##*/}"
done
pages "$tree/bin/timewire" "$tree/share" zsh/site-functions
of=$tree/share/doc/timewire
cp -R "$here"/LICENSE-* "$here/LICENSES" "$here/CHANGELOG.md" "$of/"
# What its libraries are licensed by, and their versions.
linked=
while read -r archive; do
    package=$(dpkg-query --search "*${archive#/usr}" | cut -d: -f1)
    [ -n "$package" ] || fail "no package has $archive"
    cp "/usr/share/doc/$package/copyright" "$of/LICENSES/$package.copyright" ||
        fail "$package does not say how it is licensed"
    linked="$linked $(. /etc/os-release && echo "$ID")/$(
        dpkg-query --show --showformat='${Package}@${Version}' "$package")"
done <"$built/static/archives"
# shellcheck disable=SC2086  # one word each is wanted
bill timewire-static $linked >"$out/$name.cdx.json"
cp "$out/$name.cdx.json" "$of/timewire.cdx.json"
archive "$name" | xz -T1 -6 >"$out/$name.tar.xz"
# Its files are compressed already, as debuggers read them.
archive "$debug" | gzip -n >"$out/$debug.tar.gz"

"$here/scripts/wheel.py" "$library" "$version" "$out" || fail "no wheel"

cd "$out"
sha256sum ./*.deb ./*.tar.?z ./*.whl ./*.cdx.json >SHA256SUMS
for package in "$out"/*.deb "$out"/*.tar.?z "$out"/*.whl; do
    echo "$package"
done
