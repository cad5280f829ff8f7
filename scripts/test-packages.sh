#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Installs the packages into a root file system with nothing but what Debian cannot do without, by
# the commands of the container's recipe, uses them there, removes them, and looks at what is left.
# As root; the mirrors are those of this machine's apt.
#
#   scripts/test-packages.sh PACKAGES
#
#   PACKAGES  a directory that scripts/package.sh filled
#
# Exit: 0 all is well; 1 something is not, the failed step being the last line.
set -eu

fail() {
    echo "test-packages: $*" >&2
    exit 1
}
[ $# -eq 1 ] || fail "usage: $0 PACKAGES"
packages=$(cd "$1" && pwd)
recipe=$(cd "$(dirname "$0")/.." && pwd)/packaging/container/Containerfile
command -v mmdebstrap >/dev/null || fail "no mmdebstrap here; scripts/setup.sh package installs it"
[ "$(id -u)" -eq 0 ] || fail "only root can change the root of a process"
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

(cd "$packages" && sha256sum --quiet --check SHA256SUMS) || fail "the sums are not those of the files"
root=$work/root
# What the packages say that they need, and nothing of this machine's.
needs=$(for package in "$packages"/*.deb; do dpkg-deb --field "$package" Depends; done |
    sed 's/([^)]*)//g' | tr -d ' ' | tr '\n' ',' | sed 's/,$//')
mmdebstrap --quiet --variant=essential --include="$needs" "$suite" "$root" >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "no bare $suite"
}
cp "$packages"/* "$root/tmp/"
# With /proc and /sys as on any system, mounted for the one command.
inside() {
    # shellcheck disable=SC2016  # the inner shell has the words
    unshare --mount --propagation private sh -c '
        mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" &&
            exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$root" "$@"
}
step() { echo "test-packages: $*"; }

step 'the commands of the recipe, which need nothing but what the packages say'
sed -n 's/^RUN //p' "$recipe" >"$work/recipe"
[ "$(wc -l <"$work/recipe")" -ge 3 ] || fail "few commands in $recipe"
while read -r line; do
    case $line in
    *\\) fail "a command of several lines in $recipe: $line" ;;
    apt-get\ *) continue ;; # what it fetches is what mmdebstrap has put there
    esac
    inside sh -c "$line" </dev/null >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "on a bare $suite: $line"
    }
done <"$work/recipe"
program=$(sed -n 's/^ENTRYPOINT \["\(.*\)"\]$/\1/p' "$recipe")
inside "$program" --help >/dev/null || fail "the recipe's program is $program"

step 'the library needs nothing but what it says'
# shellcheck disable=SC2016  # it is the inner shell that knows the files
inside sh -c 'dpkg --install /tmp/libtimewire-dev_*.deb' >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail "the library cannot be installed on a bare $suite"
}

step 'the command and its pages'
inside timewire --version
[ -e "$root/usr/share/man/man1/timewire-trace-record.1.gz" ] ||
    inside dpkg-query -L timewire | grep -q man1/timewire-trace-record ||
    fail 'no manual page of a verb'
for shell in bash-completion/completions/timewire zsh/vendor-completions/_timewire \
    fish/vendor_completions.d/timewire.fish; do
    grep -q 'doctor' "$root/usr/share/$shell" || fail "no completions in $shell"
done

step 'each says what it is made of'
for package in timewire libtimewire-dev; do
    of=usr/share/doc/$package/$package.cdx.json
    cmp "$packages/$package"_*.cdx.json "$root/$of" || fail "no $of"
    grep -q '"bomFormat": "CycloneDX"' "$root/$of" || fail "$of is no bill of materials"
done

step 'the dashboard is there'
[ -s "$root/usr/share/timewire/grafana/timewire-listen.json" ] || fail 'no dashboard'

step 'a simulation and a plan, of the files that came with it'
inside timewire sim /usr/share/timewire/scenarios/networks/tdm-64.network.yaml >"$work/sim" ||
    fail 'a simulation'
inside timewire plan /usr/share/timewire/scenarios/networks/planned-cell.network.yaml \
    >"$work/plan" || fail 'a plan'

step 'what this kernel can do, as somebody who is not root'
inside setpriv --reuid=65534 --regid=65534 --clear-groups timewire doctor >"$work/doctor" ||
    [ $? -le 4 ] || fail 'the doctor'
[ -s "$work/doctor" ] || fail 'the doctor said nothing'

step 'the unit of the agent names a program that is there'
program=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' \
    "$root/usr/lib/systemd/system/timewire-agent.service")
[ -x "$root$program" ] || fail "no $program"

step 'the library finds its own'
[ -f "$root/usr/lib/pkgconfig/timewire.pc" ] && [ -f "$root/usr/include/timewire.h" ] ||
    fail 'no header, or no pkg-config file'
inside ldconfig
inside ldconfig -p | grep -q 'libtimewire\.so' || fail 'the dynamic linker does not know it'

step 'after a removal nothing is left'
inside dpkg-query -L timewire libtimewire-dev | while read -r path; do
    if [ -f "$root$path" ] || [ -L "$root$path" ]; then echo "$path"; fi
done >"$work/files"
[ "$(wc -l <"$work/files")" -gt 100 ] || fail 'few files were installed'
mkdir -p "$root/var/lib/timewire/agent" "$root/var/lib/timewire/applied"
inside dpkg --purge timewire libtimewire-dev >"$work/purge" 2>&1 || fail "$(cat "$work/purge")"
while read -r path; do
    [ ! -e "$root$path" ] || fail "$path is left"
done <"$work/files"
[ ! -e "$root/var/lib/timewire" ] || fail '/var/lib/timewire is left'

step 'what is needed to put a host back stays'
mkdir -p "$root/var/lib/timewire/applied"
echo record >"$root/var/lib/timewire/applied/record"
cp "$packages"/timewire_*.deb "$root/tmp/"
inside sh -c 'dpkg --install /tmp/timewire_*.deb && dpkg --purge timewire' >"$work/purge" 2>&1 ||
    fail "$(cat "$work/purge")"
[ -e "$root/var/lib/timewire/applied/record" ] || fail 'a record of what is applied is gone'
echo 'test-packages: ok'
