// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives the shared library its name for the dynamic linker, which ends with the version of the
//! binary interface: a program that was linked with another one does not start with this library.

use std::env;
use std::fs;

const HEADER: &str = "include/timewire.h";

fn main() {
    println!("cargo:rerun-if-changed={HEADER}");
    let header = fs::read_to_string(HEADER).expect("the header is in the crate");
    let version = header
        .lines()
        .find_map(|line| line.strip_prefix("#define TW_ABI_VERSION "))
        .expect("the header defines TW_ABI_VERSION");
    println!("cargo:rustc-env=TIMEWIRE_ABI_VERSION={version}");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtimewire.so.{version}");
    }
}
