#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Runs cargo and tells how far it is: on a terminal cargo does, elsewhere there is a line every 15
# seconds. Warnings and errors are shown as always.
#
#   scripts/cargo.sh build|check|clippy|test ARGUMENT...
#
# Exit: that of cargo.
set -eu

cargo=${CARGO:-cargo}
if [ -t 2 ]; then exec "$cargo" "$@"; fi
verb=$1
shift
work=$(mktemp -d)
: >"$work/messages"

# Which packages it is about, for `cargo tree`.
edges=normal,build which=
for word in "$@"; do
    case $word in --) break ;; esac
    case ${value:-} in ?*) which="$which $value $word" value= && continue ;; esac
    case $word in
    --package | --manifest-path) value=$word ;;
    --workspace) which=$word edges=all ;;
    esac
done

# shellcheck disable=SC2086  # one word each is wanted
progress() {
    total=$("$cargo" tree --quiet $which --edges "$edges" --prefix none --format '{p}' 2>/dev/null |
        sed 's/ (\*)$//' | sort -u | wc -l)
    started=$(date +%s) shown=0
    # A background job of a shell hears no Ctrl-C: it ends with the shell that started it.
    while sleep 1 && kill -0 $$ 2>/dev/null; do
        seconds=$(($(date +%s) - started))
        [ "$seconds" -ge $((shown + 15)) ] || continue
        shown=$seconds
        compiled=$(grep -o '^{"reason":"compiler-artifact","package_id":"[^"]*"' "$work/messages" |
            sort -u | wc -l)
        echo "cargo $verb: $compiled of $total crates after $seconds s" >&2
    done
    rm -rf "$work"
}
progress &
ticker=$!
trap 'kill $ticker 2>/dev/null || :; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$cargo" "$verb" --quiet --message-format=json-render-diagnostics "$@" >"$work/messages"
