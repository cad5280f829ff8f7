#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Installs the packages into a root file system with nothing but what Debian cannot do without, by
# the commands of the container's recipe, uses them there, removes them, and looks at what is left.
# The static command runs where there is nothing else at all, the wheel where no libelf is. As root; the mirrors are those of this machine's apt.
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
command -v mmdebstrap >/dev/null || fail "no mmdebstrap here; scripts/setup.sh package installs it"
[ "$(id -u)" -eq 0 ] || fail "only root can change the root of a process"
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")/.." && pwd)
recipe=$here/packaging/container/Containerfile

(cd "$packages" && sha256sum --quiet --check SHA256SUMS) || fail "the sums are not those of the files"
root=$work/root
# What the packages say that they need, a Python for the wheel, and nothing of this machine's.
needs=$(for package in "$packages"/*.deb; do dpkg-deb --field "$package" Depends; done |
    sed 's/([^)]*)//g' | tr -d ' ' | tr '\n' ',' | sed 's/,$//')
mmdebstrap --quiet --variant=essential --include="$needs,python3-venv" "$suite" "$root" >"$work/log" 2>&1 || {
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
inside timewire sim /usr/share/timewire/scenarios/networks/access-tdm.network.yaml >"$work/sim" ||
    fail 'a simulation'
inside timewire plan /usr/share/timewire/scenarios/networks/planned-cell.network.yaml \
    >"$work/plan" || fail 'a plan'

step 'the static command, where there is nothing else'
bare=$work/bare
mkdir "$bare"
tar --extract --file "$packages"/timewire-*-linux-static.tar.xz --directory "$bare" \
    --strip-components=1
[ "$(cd "$bare" && echo *)" = 'bin lib share' ] && [ "$(ls "$bare/bin")" = timewire ] ||
    fail 'more, or less, than was expected in the archive'
readelf --wide --program-headers --dynamic "$bare/bin/timewire" >"$work/headers"
if grep -E 'INTERP|NEEDED' "$work/headers"; then fail 'it is not static'; fi
cmp "$packages"/timewire-*-linux-static.cdx.json "$bare/share/doc/timewire/timewire.cdx.json" ||
    fail 'it does not say what it is made of'
for part in libelf-dev libc6-dev zlib1g-dev; do
    grep -q "/$part@" "$bare/share/doc/timewire/timewire.cdx.json" &&
        [ -s "$bare/share/doc/timewire/LICENSES/$part.copyright" ] || fail "nothing of $part"
done
chroot=$(command -v chroot)
alone() { env -i "$chroot" "$bare" /bin/timewire "$@"; }
alone --version >"$work/version" || fail 'it does not start'
inside timewire --version | cmp - "$work/version" || fail 'another version'
# What it took differs from run to run; what was done does not.
steps() { sed 's/^\(search: .* steps\), .*/\1/' "$1"; }
networks=share/timewire/scenarios/networks
alone plan /$networks/planned-cell.network.yaml >"$work/plan.static" || fail 'a plan'
steps "$work/plan" >"$work/steps"
grep -q '^search: .* steps$' "$work/steps" || fail 'a plan does not count its steps'
steps "$work/plan.static" | diff "$work/steps" - || fail 'another plan'
alone sim /$networks/access-tdm.network.yaml >"$work/sim.static" || fail 'a simulation'
diff "$work/sim" "$work/sim.static" || fail 'another simulation'
alone sim /$networks/tsn-line.network.yaml --out /run >"$work/run" || fail 'a run'
alone report /run >"$work/report" && [ -s "$bare/run/report.html" ] || fail 'a report'

step 'what debuggers need is that of the programs'
tar --extract --file "$packages"/timewire-*-linux-debug.tar.gz --directory "$work" \
    --transform 's,^[^/]*,debug,'
for program in "$root/usr/bin/timewire" "$bare/bin/timewire" "$root"/usr/lib/libtimewire.so.*.*.*; do
    case $program in
    "$bare"/*) file=/usr/local${program#"$bare"} ;;
    *) file=${program#"$root"} ;;
    esac
    file=$work/debug/usr/lib/debug$file.debug
    readelf --sections --wide "$file" | grep '\.debug_line ' >/dev/null || fail "no lines in $file"
    readelf --string-dump=.gnu_debuglink "$program" | grep " ${file##*/}\$" >/dev/null ||
        fail "$program does not name $file"
    for part in "$program" "$file"; do readelf --notes "$part" | grep 'Build ID'; done |
        uniq -c | grep '^ *2 ' >/dev/null || fail "$program and $file were built apart"
done

step 'it asks no plug-in for a name'
mkdir "$bare/etc"
echo '127.0.0.1 station.example' >"$bare/etc/hosts"
echo 'hosts: plugin' >"$bare/etc/nsswitch.conf"
if alone agent pair station.example:1 --code aaaaa-bbbbb-ccccc-ddddd --name bare --dir /agent \
    2>"$work/log" ||
    ! grep -q 'Connection refused' "$work/log"; then
    cat "$work/log" >&2
    fail 'a name in /etc/hosts'
fi

step 'it talks to itself'
# shellcheck disable=SC2016  # it is the inner shell that has the words
unshare --net env -i "PATH=$PATH" sh -c '
    ip link set lo up
    chroot "$0" /bin/timewire listen --over udp 127.0.0.1:15001 --count 100 --for 30s \
        --expect loss=0 &
    for attempt in $(seq 100); do
        [ -z "$(ss -Hlun sport = 15001)" ] || break
        sleep 0.1
    done
    chroot "$0" /bin/timewire talk station.example:15001 --cycle 5ms --count 100 --send-late
    wait $!' "$bare" >"$work/talk" 2>&1 || {
    cat "$work/talk" >&2
    fail 'talk and listen'
}

step 'what this kernel can do, as somebody who is not root'
inside setpriv --reuid=65534 --regid=65534 --clear-groups timewire doctor >"$work/doctor" ||
    [ $? -le 4 ] || fail 'the doctor'
[ -s "$work/doctor" ] || fail 'the doctor said nothing'

step 'from the packages to a verdict and a plan, as the book says'
(cd "$here" && TIMEWIRE_BARE_SYSTEM=$root "${CARGO:-cargo}" test --quiet --package timewire-cli \
    --test all -- --nocapture transcripts::t4_pages_of_a_bare_system) >"$work/log" 2>&1 || {
    cat "$work/log" >&2
    fail 'docs/src/from-packages.md'
}
grep '^[0-9]* commands of [0-9]* pages' "$work/log" || fail 'no page was executed'

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

step 'what is needed to restore a host stays'
mkdir -p "$root/var/lib/timewire/applied"
echo record >"$root/var/lib/timewire/applied/record"
cp "$packages"/timewire_*.deb "$root/tmp/"
inside sh -c 'dpkg --install /tmp/timewire_*.deb && dpkg --purge timewire' >"$work/purge" 2>&1 ||
    fail "$(cat "$work/purge")"
[ -e "$root/var/lib/timewire/applied/record" ] || fail 'a record of what is applied is gone'

step 'the wheel, where no libelf is'
elf=$(inside dpkg-query --show --showformat='${Package}\n' 'libelf1*' | head -n 1)
inside dpkg --purge --force-depends "$elf" >"$work/log" 2>&1 || fail "$(cat "$work/log")"
inside python3 -m venv /tmp/venv || fail 'no environment of Python'
listed() { (cd "$root/tmp/venv" && find . -name __pycache__ -prune -o -print | LC_ALL=C sort); }
listed >"$work/before"
pip() {
    inside /tmp/venv/bin/pip --quiet --disable-pip-version-check --no-cache-dir "$@" \
        >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "pip $*"
    }
}
pip install --no-index --no-deps "/tmp/$(basename "$packages"/timewire-*.whl)"
cp "$here/crates/capi/examples/echo.py" "$root/tmp/"
inside /tmp/venv/bin/python /tmp/echo.py 50 >"$work/log" 2>&1 && grep '^echoes 50 ' "$work/log" || {
    cat "$work/log" >&2
    fail 'the module'
}
inside /tmp/venv/bin/python -c 'import timewire
for name in "libelf", "libtimewire":
    paths = [line.split()[-1] for line in open("/proc/self/maps") if name in line]
    assert paths and all("/venv/" in path for path in paths), (name, paths)' ||
    fail 'it has another library than that of the wheel'
inside sh -c 'cat /tmp/venv/lib/python3*/site-packages/timewire-*.dist-info/sboms/*.json' |
    cmp - "$packages"/timewire-*-py3-none-*.cdx.json || fail 'it does not say what it is made of'
pip uninstall --yes timewire
listed | diff "$work/before" - || fail 'the wheel left something'
echo 'test-packages: ok'
