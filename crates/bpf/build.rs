// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles the eBPF programs with clang; the objects are embedded in the crate.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 9] = [
    "src/receive/receive.bpf.c",
    "src/losses/losses.bpf.c",
    "src/ingress/ingress.bpf.c",
    "src/pass/pass.bpf.c",
    "src/egress/egress.bpf.c",
    "src/listen/listen.bpf.c",
    "src/probe/probe.bpf.c",
    "src/trace/trace.bpf.c",
    "src/probe/metadata.bpf.c",
];
/// clang 14 miscompiles some kernel pointer types; any later one will do.
const CLANGS: [&str; 6] = ["clang-16", "clang-19", "clang-18", "clang-17", "clang-15", "clang"];

fn main() {
    println!("cargo:rerun-if-env-changed=CLANG");
    let clang = find_clang();
    let include =
        PathBuf::from(env::var("DEP_BPF_INCLUDE").expect("libbpf-sys exports its headers"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    for source in PROGRAMS {
        println!("cargo:rerun-if-changed={source}");
        compile(&clang, &include, Path::new(source), &out);
    }
    for header in [
        "src/parse.bpf.h",
        "src/trace/trace.bpf.h",
        "src/trace/identity.bpf.h",
        "src/trace/sockets.bpf.h",
    ] {
        println!("cargo:rerun-if-changed={header}");
    }
}

fn find_clang() -> String {
    if let Ok(named) = env::var("CLANG") {
        return named;
    }
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    CLANGS.iter().find(works).map_or_else(
        || panic!("no clang found (looked for {CLANGS:?}): run `make setup`, or set CLANG"),
        |name| (*name).to_owned(),
    )
}

/// As the kernel and libbpf call the machine: a kprobe's program reads its registers.
fn kernel_arch() -> String {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    match arch.as_str() {
        "x86_64" => "x86".to_owned(),
        "aarch64" => "arm64".to_owned(),
        "riscv64" => "riscv".to_owned(),
        "powerpc64" => "powerpc".to_owned(),
        "s390x" => "s390".to_owned(),
        "loongarch64" => "loongarch".to_owned(),
        other => other.to_owned(),
    }
}

fn compile(clang: &str, include: &Path, source: &Path, out: &Path) {
    let name = source.file_stem().expect("a C file has a name");
    let object = out.join(format!("{}.o", name.to_string_lossy()));
    let target = env::var("TARGET").expect("cargo sets TARGET").replace("-unknown-", "-");
    let output = Command::new(clang)
        .args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c"])
        .arg(format!("-D__TARGET_ARCH_{}", kernel_arch()))
        .arg("-I")
        .arg(include)
        .args(["-I", "src", "-idirafter", &format!("/usr/include/{target}")])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {clang}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{clang} could not compile {}:\n{said}", source.display());
}
