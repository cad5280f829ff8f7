// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distribution's own build of User-Mode Linux: a program and a tree of modules, of which the
//! laboratory loads those that its own kernel has built in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::config::{self, Series};
use crate::LabError;

/// Takes the program, its configuration and the modules out of the unpacked package; the
/// configuration.
///
/// **Errors**: the package is not laid out as expected.
pub(super) fn collect(tree: &Path, made: &Path) -> Result<String, LabError> {
    let unexpected = |why: &str| LabError::Packages {
        what: "use the distribution's kernel".to_owned(),
        why: why.to_owned(),
    };
    fs::create_dir(made).map_err(LabError::file("create", made))?;
    let linux = made.join("linux");
    let program = tree.join("usr/bin/linux.uml");
    fs::rename(&program, &linux).map_err(|_| unexpected("the package has no usr/bin/linux.uml"))?;
    let output = Command::new(&linux).arg("--showconfig").stdin(Stdio::null()).output();
    let output = output.map_err(LabError::file("run", &linux))?;
    let configuration = String::from_utf8_lossy(&output.stdout).into_owned();
    if !configuration.contains("CONFIG_") {
        return Err(unexpected("it does not show its configuration; this system may be too old"));
    }
    let path = made.join("config");
    fs::write(&path, &configuration).map_err(LabError::file("write", &path))?;
    collect_modules(tree, &made.join("modules"))?;
    Ok(configuration)
}

/// What it lacks; what it has as a module it does not lack.
pub(super) fn missing(series: Series, configuration: &str) -> Vec<String> {
    config::missing(series, &configuration.replace("=m\n", "=y\n"))
        .into_iter()
        // How consoles are set up is said on the command line.
        .filter(|symbol| !symbol.ends_with("_CHAN"))
        .collect()
}

/// Copies the modules and what they need, and writes the order in which they are loaded.
fn collect_modules(tree: &Path, to: &Path) -> Result<(), LabError> {
    fs::create_dir(to).map_err(LabError::file("create", to))?;
    let mut all = BTreeMap::new();
    find(&tree.join("usr/lib/uml/modules"), &mut all);
    let mut order = Vec::new();
    let mut done = BTreeSet::new();
    for name in MODULES {
        load_order(name, &all, &mut done, &mut order)?;
    }
    let mut list = String::new();
    for (name, from) in &order {
        let path = to.join(format!("{name}.ko"));
        fs::copy(from, &path).map_err(LabError::file("copy", from))?;
        list += &format!("{name}.ko\n");
    }
    let path = to.join("load");
    fs::write(&path, list).map_err(LabError::file("write", &path))
}

/// All modules below a directory, by name.
fn find(below: &Path, found: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "ko") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
            found.insert(name, path);
        }
    }
}

/// A module after those that it depends on. One that is not there is built in, or not to be had.
fn load_order(
    name: &str,
    all: &BTreeMap<String, PathBuf>,
    done: &mut BTreeSet<String>,
    order: &mut Vec<(String, PathBuf)>,
) -> Result<(), LabError> {
    let Some(path) = all.get(name) else { return Ok(()) };
    if !done.insert(name.to_owned()) {
        return Ok(());
    }
    let bytes = fs::read(path).map_err(LabError::file("read", path))?;
    for needed in depends(&bytes) {
        load_order(&needed, all, done, order)?;
    }
    order.push((name.to_owned(), path.clone()));
    Ok(())
}

/// What a module says that it depends on (linux v6.12 `scripts/mod/modpost.c:add_depends`).
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let text = module[at + KEY.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    text.split(',').filter(|name| !name.is_empty()).map(|n| n.replace('-', "_")).collect()
}

const MODULES: [&str; 37] = [
    "overlay",
    "af_packet",
    "unix",
    "ipv6",
    "veth",
    "dummy",
    "ifb",
    "macvlan",
    "tun",
    "bridge",
    "8021q",
    "hsr",
    "sch_taprio",
    "sch_etf",
    "sch_cbs",
    "sch_mqprio",
    "sch_fq",
    "sch_fq_codel",
    "sch_netem",
    "sch_prio",
    "sch_htb",
    "sch_tbf",
    "sch_ets",
    "sch_ingress",
    "cls_basic",
    "cls_u32",
    "cls_flower",
    "cls_matchall",
    "cls_bpf",
    "cls_cgroup",
    "act_bpf",
    "act_gate",
    "act_police",
    "act_mirred",
    "act_skbedit",
    "act_vlan",
    "act_pedit",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_a_module_needs_is_read_from_it() {
        let module = b"\x7fELF\0license=GPL\0depends=stp,llc-x\0intree=Y\0";
        assert_eq!(depends(module), ["stp", "llc_x"]);
        assert_eq!(depends(b"\0depends=\0"), Vec::<String>::new());
        assert_eq!(depends(b"nothing"), Vec::<String>::new());
    }

    #[test]
    fn t0_modules_come_after_what_they_need() {
        let dir = std::env::temp_dir().join(format!("timewire-modules-{}", std::process::id()));
        fs::create_dir_all(dir.join("deep")).unwrap();
        fs::write(dir.join("deep/bridge.ko"), b"\0depends=stp,llc\0").unwrap();
        fs::write(dir.join("stp.ko"), b"\0depends=llc\0").unwrap();
        fs::write(dir.join("llc.ko"), b"\0depends=\0").unwrap();
        let (mut all, mut done, mut order) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        find(&dir, &mut all);
        load_order("bridge", &all, &mut done, &mut order).unwrap();
        load_order("not_there", &all, &mut done, &mut order).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        let names: Vec<_> = order.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["llc", "stp", "bridge"]);
    }
}
