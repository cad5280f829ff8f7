#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Puts libtimewire, which cargo built, into a tree as a prefix has it, and says where things are.
#
#   scripts/stage-library.sh BUILT TREE
#
#   BUILT  the directory with libtimewire.so and libtimewire.a
#   TREE   gets include, lib, lib/pkgconfig, share/timewire; nothing else in it is touched
#
# The tree may be moved or copied to any prefix: its pkg-config file is relative to itself.
# Exit: 0 done; 1 the library is not built, or the tree cannot be written.
set -eu

[ $# -eq 2 ] && [ -n "$1" ] && [ -n "$2" ] || {
    echo "usage: $0 BUILT TREE" >&2
    exit 1
}
built=$1 tree=$2
source=$(cd "$(dirname "$0")/../crates/capi" && pwd)
abi=$(sed -n 's/^#define TW_ABI_VERSION //p' "$source/include/timewire.h")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$source/../../Cargo.toml" | head -n 1)

mkdir -p "$tree/include" "$tree/lib/pkgconfig" "$tree/share/timewire/examples"
cp "$source/include/timewire.h" "$source/include/timewire_mark.h" "$tree/include/"
# A program that runs with an earlier copy keeps it.
cp --remove-destination "$built/libtimewire.so" "$tree/lib/libtimewire.so.$abi.$version"
ln -sf "libtimewire.so.$abi.$version" "$tree/lib/libtimewire.so.$abi"
ln -sf "libtimewire.so.$abi" "$tree/lib/libtimewire.so"
cp "$built/libtimewire.a" "$tree/lib/"
sed "s/@VERSION@/$version/" "$source/timewire.pc.in" >"$tree/lib/pkgconfig/timewire.pc"
cp "$source/python/timewire.py" "$tree/share/timewire/"
cp "$source"/examples/* "$tree/share/timewire/examples/"

cat <<END
header      $tree/include/timewire.h
library     $tree/lib/libtimewire.so (.$abi.$version), libtimewire.a
pkg-config  $tree/lib/pkgconfig/timewire.pc
python      $tree/share/timewire/timewire.py
examples    $tree/share/timewire/examples
END
