#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a wheel of the Python module, with the library and the shared libraries that not every
Linux has; needs Python's own modules, readelf, and Debian's dpkg-query.

    scripts/wheel.py LIBRARY VERSION OUT

    LIBRARY  libtimewire.so, stripped
    OUT      the directory that gets the wheel, and what it is made of (.cdx.json)

The same files and the same SOURCE_DATE_EPOCH give the same bytes.

Source: the binary distribution format of packaging.python.org; PEP 600 (manylinux), PEP 639
(licences), PEP 770 (bills).
"""
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import time
import zipfile

# What PEP 600 takes for granted, of what may be needed here, with the dynamic linker.
EVERYWHERE = re.compile(r"(lib(c|m|dl|rt|pthread|gcc_s|z)|ld-linux[a-z0-9-]*)\.so\.[0-9]+$")
SUMMARY = "Timewire's data path: sending and receiving Ethernet frames on time, with timestamps"
TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The last is libelf's.
LICENCE = ("(Apache-2.0 OR MIT) AND (GPL-2.0-only OR BSD-2-Clause)"
           " AND (GPL-2.0-or-later OR LGPL-3.0-or-later)")
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT", "LICENSE-BPF.md", "LICENSES/BSD-2-Clause.txt",
            "LICENSES/GPL-2.0-only.txt")


def said(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def of_dynamic(path, kind):
    """The values of a kind in what `readelf` says of a library."""
    return re.findall(r"\(%s\).*\[(.*)\]" % kind, said("readelf", "--wide", "--dynamic", path))


def glibc_of(path):
    """The minor version of the GNU C library that a library needs at least."""
    versions = re.findall(r"GLIBC_2\.([0-9]+)", said("readelf", "--wide", "--version-info", path))
    return max(map(int, versions), default=0)


def found(name):
    """Where the dynamic linker has a library."""
    wide = "x86-64" if platform.machine() == "x86_64" else ""
    for line in said("/sbin/ldconfig", "--print-cache").splitlines():
        words, _, path = line.strip().partition(" => ")
        if words.split(" ")[0] == name and wide in words:
            return os.path.realpath(path)
    raise SystemExit("wheel: the dynamic linker knows no %s" % name)


def package_of(path):
    """The package of Debian that a library is from, and its version."""
    name = said("dpkg-query", "--search", "*/" + os.path.basename(path)).split(":")[0]
    return name, said("dpkg-query", "--show", "--showformat=${Version}", name)


def with_needs(name, path, libraries):
    """Puts a library behind those that it needs and that not every Linux has."""
    for need in of_dynamic(path, "NEEDED"):
        if not EVERYWHERE.match(need) and need not in dict(libraries):
            with_needs(need, found(need), libraries)
    libraries.append((name, path))


def main(library, version, out):
    libraries = []
    (name,) = of_dynamic(library, "SONAME") or ["libtimewire.so"]
    with_needs(name, library, libraries)
    packages = dict(package_of(path) for _, path in libraries[:-1])
    minor = max(glibc_of(path) for _, path in libraries)
    tag = "py3-none-manylinux_2_%d_%s" % (minor, platform.machine())

    info = "timewire-%s.dist-info/" % version
    files = {"timewire.py": os.path.join(TOP, "crates/capi/python/timewire.py")}
    files.update(("timewire.libs/" + name, path) for name, path in libraries)
    licences = {name: os.path.join(TOP, name) for name in LICENCES}
    licences.update(("%s/copyright" % name, "/usr/share/doc/%s/copyright" % name)
                    for name in packages)
    files.update((info + "licenses/" + name, path) for name, path in licences.items())

    texts = {"timewire.libs/load": "".join(name + "\n" for name, _ in libraries)}
    texts[info + "WHEEL"] = ("Wheel-Version: 1.0\nGenerator: timewire\nRoot-Is-Purelib: false\n"
                             "Tag: %s\n" % tag)
    texts[info + "METADATA"] = "".join(
        ["Metadata-Version: 2.4\nName: timewire\nVersion: %s\nSummary: %s\n" % (version, SUMMARY),
         "License-Expression: %s\n" % LICENCE]
        + ["License-File: %s\n" % name for name in sorted(licences)]
        + ["Requires-Python: >=3.9\n"])
    bill = bill_of(packages)
    texts[info + "sboms/timewire.cdx.json"] = bill
    target = os.path.join(out, "timewire-%s-%s" % (version, tag))
    with open(target + ".cdx.json", "w", encoding="utf-8") as file:
        file.write(bill)

    content = {name: text.encode() for name, text in texts.items()}
    for name, path in files.items():
        with open(path, "rb") as file:
            content[name] = file.read()
    record = info + "RECORD"
    lines = ["%s,sha256=%s,%d\n" % (name, digest(content[name]), len(content[name]))
             for name in sorted(content)]
    content[record] = ("".join(lines) + record + ",,\n").encode()

    date = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    with zipfile.ZipFile(target + ".whl", "w") as wheel:
        # What says what is in it comes last, as the format desired configurations.
        for name in sorted(content, key=lambda name: (name.startswith(info), name == record, name)):
            entry = zipfile.ZipInfo(name, date)
            entry.create_system = 3
            entry.external_attr = (0o100755 if ".so" in name else 0o100644) << 16
            wheel.writestr(entry, content[name], zipfile.ZIP_DEFLATED, 9)


def bill_of(packages):
    distribution = platform.freedesktop_os_release()["ID"]
    libraries = ["%s/%s@%s" % (distribution, name, version)
                 for name, version in sorted(packages.items())]
    return said(os.environ.get("CARGO", "cargo"), "run", "--quiet", "--package", "xtask",
                "--manifest-path", os.path.join(TOP, "Cargo.toml"), "--", "sbom",
                "timewire-python", *libraries)


def digest(content):
    text = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return text.rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
