// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers' programs: packages of the distribution, unpacked into the cache and not installed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command;

/// With the libraries that not every system has.
const PACKAGES: [&str; 4] = ["isochron", "libmnl0", "xdp-tools", "libbpf1"];
const SHIM: &str = "peers/src/shim.c";

/// Programs that can be run, and what they need.
pub struct Peers {
    pub isochron: PathBuf,
    pub trafficgen: PathBuf,
    /// `LD_LIBRARY_PATH`.
    pub libraries: OsString,
    /// `LD_PRELOAD`, with which they start on a virtual cable.
    pub shim: PathBuf,
}

/// Fetches what is not there yet.
///
/// **Errors**: there is no apt, the packages cannot be had, or there is no C compiler.
pub fn peers(root: &Path) -> Result<Peers, String> {
    let cache = cache()?.join("peers");
    let tree = cache.join("root");
    if !tree.join("usr/bin/isochron").exists() || !tree.join("usr/sbin/xdp-trafficgen").exists() {
        download(&cache, &tree)?;
    }
    let shim = cache.join("shim.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&shim);
    command::succeed(compiler.arg(root.join(SHIM)).arg("-ldl"))?;
    let mut libraries = vec![tree.join("usr/lib")];
    let below = fs::read_dir(tree.join("usr/lib")).map_err(|error| format!("usr/lib: {error}"))?;
    libraries.extend(below.flatten().map(|entry| entry.path()));
    Ok(Peers {
        isochron: tree.join("usr/bin/isochron"),
        trafficgen: tree.join("usr/sbin/xdp-trafficgen"),
        libraries: std::env::join_paths(libraries).map_err(|error| error.to_string())?,
        shim,
    })
}

fn download(cache: &Path, tree: &Path) -> Result<(), String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    fs::create_dir_all(tree).map_err(|error| failed(tree, error))?;
    eprintln!("fetching {}", PACKAGES.join(", "));
    let mut apt = Command::new("apt-get");
    apt.args(["-qq", "-o", "APT::Sandbox::User=", "download"]).args(PACKAGES).current_dir(cache);
    command::output_of(&mut apt)?;
    for entry in fs::read_dir(cache).map_err(|error| failed(cache, error))?.flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "deb") {
            let mut unpack = Command::new("dpkg-deb");
            command::output_of(unpack.arg("--extract").arg(entry.path()).arg(tree))?;
        }
    }
    Ok(())
}

/// Where what is fetched is kept, as `timewire_lab::cache::root` has it.
///
/// **Errors**: no variable says where.
pub fn cache() -> Result<PathBuf, String> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let of_home = || variable("HOME").map(|home| Path::new(&home).join(".cache/timewire"));
    let xdg = || variable("XDG_CACHE_HOME").map(|dir| Path::new(&dir).join("timewire"));
    let root = variable("TIMEWIRE_CACHE").map(PathBuf::from).or_else(xdg).or_else(of_home);
    root.ok_or_else(|| "none of TIMEWIRE_CACHE, XDG_CACHE_HOME and HOME is set".to_owned())
}
