// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel of a machine starts from: modules, the running program with its libraries as the
//! first process, and what it is to do.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cpio::Archive;
use super::init::{DIRECTORIES, MODULES, NEXT, Next};
use super::modules::{Module, Modules};
use crate::LabError;
use crate::guest::Job;

/// Modules without which there is no machine: the host's files.
const NEEDED: [&str; 5] = ["virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"];

/// Modules that a laboratory wants: every queueing discipline, classifier and action, links,
/// bridges, NICs. A kernel without one of them is one without it; what needs it says so.
pub const WANTED: &[&str] = &[
    // Others ask the kernel for the checksum by its name, which is no dependency.
    "crc32c_generic",
    "veth",
    "bridge",
    "8021q",
    "dummy",
    "ifb",
    "hsr",
    "macvlan",
    "tun",
    "bonding",
    "team",
    "sch_taprio",
    "sch_etf",
    "sch_cbs",
    "sch_mqprio",
    "sch_mqprio_lib",
    "sch_fq",
    "sch_fq_codel",
    "sch_netem",
    "sch_ets",
    "sch_prio",
    "sch_tbf",
    "sch_htb",
    "sch_hfsc",
    "sch_multiq",
    "sch_drr",
    "sch_qfq",
    "sch_red",
    "sch_sfq",
    "sch_cake",
    "sch_plug",
    "sch_ingress",
    "cls_basic",
    "cls_bpf",
    "cls_flower",
    "cls_fw",
    "cls_matchall",
    "cls_route",
    "cls_u32",
    "cls_cgroup",
    "em_meta",
    "em_cmp",
    "em_u32",
    "act_bpf",
    "act_gact",
    "act_gate",
    "act_mirred",
    "act_pedit",
    "act_police",
    "act_sample",
    "act_skbedit",
    "act_simple",
    "act_vlan",
    "act_ct",
    "act_csum",
    "act_mpls",
    "xsk_diag",
    "inet_diag",
    "udp_diag",
    "tcp_diag",
    "unix_diag",
    "af_packet_diag",
    "netlink_diag",
    "igb",
];

/// The archive of a kernel's modules, and the names of those that it lacks.
///
/// **Errors**: a module that is needed is missing; one cannot be unpacked.
pub fn modules_archive(modules: &Modules) -> Result<(Vec<u8>, Vec<String>), LabError> {
    let (wanted, missing): (Vec<_>, Vec<_>) = WANTED.iter().partition(|name| modules.has(name));
    let wanted: Vec<_> = NEEDED.into_iter().chain(wanted).collect();
    let ordered = modules.closure(&wanted)?;
    let mut archive = Archive::default();
    DIRECTORIES.iter().for_each(|directory| archive.directory(directory));
    archive.device("dev/console", 5, 1);
    let mut names = Vec::new();
    for Module { name, image } in ordered {
        archive.file(&format!("modules/{name}"), 0o644, &image);
        names.push(name);
    }
    archive.file(MODULES.trim_start_matches('/'), 0o644, names.join("\n").as_bytes());
    Ok((archive.finish(), missing.into_iter().map(str::to_owned).collect()))
}

/// The first process: how the kernel is told to start it.
#[derive(Debug)]
pub struct FirstProcess {
    /// The archive of its files.
    pub archive: Vec<u8>,
    /// What the kernel's command line says of it, up to the arguments of the program itself.
    pub line: String,
}

/// The running program as the first process, with the libraries that it has loaded.
///
/// **Errors**: a file cannot be read.
pub fn first_process(next: &Next) -> Result<FirstProcess, LabError> {
    let mut archive = Archive::default();
    let loader = own_loader()?;
    if let Some(loader) = &loader {
        let this = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
        archive.file("lib/loader", 0o755, &read(loader)?);
        for library in libraries_of(loader, &this)? {
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            archive.file(&format!("lib/{name}"), 0o755, &read(&library)?);
        }
    }
    archive.file("init", 0o755, &read(Path::new("/proc/self/exe"))?);
    add_next(&mut archive, next);
    let line = if loader.is_some() {
        "rdinit=/lib/loader -- --library-path /lib /init"
    } else {
        "rdinit=/init --"
    };
    Ok(FirstProcess { archive: archive.finish(), line: line.to_owned() })
}

/// The running program and others, each at its place with its libraries: a root of its own. The job
/// is in it; so is its directory, empty.
///
/// **Errors**: a program is not there, or a file cannot be read.
pub fn sealed_root(next: &Next, job: &Job, programs: &[PathBuf]) -> Result<FirstProcess, LabError> {
    let mut archive = Archive::default();
    for place in ["bin", "sbin", "lib", "lib64"] {
        if let Ok(target) = fs::read_link(Path::new("/").join(place)) {
            archive.link(place, &target.to_string_lossy());
            archive.directory(target.to_string_lossy().trim_start_matches('/'));
        }
    }
    for place in ["tmp", "run", "etc", "var"] {
        archive.directory(place);
    }
    let loader = own_loader()?;
    let mut files = BTreeSet::from([next.program.clone()]);
    for program in programs {
        let found = find_program(program).ok_or_else(|| LabError::Missing {
            what: format!("the program `{}`", program.display()),
            remedy: "a sealed machine has only the programs that are named; install it here"
                .to_owned(),
        })?;
        files.insert(found);
    }
    if let Some(loader) = &loader {
        let libraries = files.iter().map(|file| libraries_of(loader, file));
        let libraries: Vec<_> = libraries.collect::<Result<_, _>>()?;
        files.extend(libraries.into_iter().flatten());
    }
    for file in &files {
        archive.file(file.to_string_lossy().trim_start_matches('/'), 0o755, &read(file)?);
    }
    let directory = job.directory.to_string_lossy();
    match directory.trim_start_matches('/') {
        "" => {}
        directory => archive.directory(directory),
    }
    let text = serde_json::to_vec(job).expect("invariant: plain values");
    archive.file(next.job.to_string_lossy().trim_start_matches('/'), 0o644, &text);
    add_next(&mut archive, next);
    let line = format!("rdinit={} --", next.program.display());
    Ok(FirstProcess { archive: archive.finish(), line })
}

fn add_next(archive: &mut Archive, next: &Next) {
    let text = serde_json::to_vec(next).expect("invariant: plain paths");
    archive.file(NEXT.trim_start_matches('/'), 0o644, &text);
}

fn find_program(program: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    // Joined with an absolute path it is that path.
    places.map(|place| place.join(program)).find(|candidate| candidate.is_file())
}

/// What the loader loads for a program, itself included; nothing for a script or a static program.
///
/// **Errors**: it cannot find one of them.
fn libraries_of(loader: &Path, program: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).env_remove("LD_PRELOAD").stdin(Stdio::null());
    let output = command.output().map_err(LabError::file("run", loader))?;
    if !output.status.success() {
        return Ok(Vec::new());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(line) = text.lines().find(|line| line.ends_with("not found")) {
        let what = format!("a library of {}: {}", program.display(), line.trim());
        return Err(LabError::Missing { what, remedy: "install its package".to_owned() });
    }
    // `libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x...)`: by the name that programs ask for.
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(Into::into);
    Ok(text.lines().filter_map(path).collect())
}

/// The loader of the running program, unless that is static.
fn own_loader() -> Result<Option<PathBuf>, LabError> {
    let maps = Path::new("/proc/self/maps");
    let text = fs::read_to_string(maps).map_err(LabError::file("read", maps))?;
    Ok(loader_in(&text))
}

fn read(path: &Path) -> Result<Vec<u8>, LabError> {
    fs::read(path).map_err(LabError::file("read", path))
}

/// The loader in a table of a process's memory.
fn loader_in(maps: &str) -> Option<PathBuf> {
    let mut paths = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    let is_loader = |path: &&str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("ld-") && name.contains(".so")
    };
    paths.find(is_loader).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::{Share, Terminal};

    #[test]
    fn t0_the_loader_is_found_in_the_table_of_memory() {
        let maps = "\
55a-55b r-xp 00000000 08:01 12 /usr/bin/timewire
7f0-7f1 r--p 00000000 08:01 13 /usr/lib/x86_64-linux-gnu/libc.so.6
7f3-7f4 r-xp 00001000 08:01 14 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
7ff-800 rw-p 00000000 00:00 0 [stack]
";
        let expected = "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2";
        assert_eq!(loader_in(maps), Some(expected.into()));
        assert_eq!(loader_in("55a-55b r-xp 00000000 08:01 12 /usr/bin/timewire\n"), None);
    }

    #[test]
    fn t0_the_running_program_is_an_archive_with_its_loader() {
        let next =
            Next { program: "/bin/true".into(), job: "/job.json".into(), on_host_files: true };
        let first = first_process(&next).unwrap();
        let holds = |text: &[u8]| first.archive.windows(text.len()).any(|part| part == text);
        assert!(
            holds(b"lib/loader\0")
                && holds(b"lib/libc.so.6\0")
                && holds(b"init\0")
                && holds(b"next.json\0")
        );
        assert!(first.line.starts_with("rdinit=/lib/loader -- "), "{}", first.line);
    }

    #[test]
    fn t0_a_sealed_root_has_the_programs_with_their_libraries() {
        let next =
            Next { program: "/bin/true".into(), job: "/job.json".into(), on_host_files: false };
        let job = Job {
            command: vec!["sh".to_owned()],
            directory: "/some/where".into(),
            environment: vec![],
            shares: vec![],
            modules: vec![],
            terminal: Terminal::Files,
            control: Share {
                path: "/run/x".into(),
                writable: true,
                kind: "9p".to_owned(),
                source: "x".to_owned(),
            },
            repeatable: true,
            sealed: true,
        };
        let root = sealed_root(&next, &job, &["sh".into()]).unwrap();
        let holds = |text: &[u8]| root.archive.windows(text.len()).any(|part| part == text);
        for part in ["bin/sh\0", "libc.so.6\0", "job.json\0", "some/where\0", "bin/true\0"] {
            assert!(holds(part.as_bytes()), "{part}");
        }
        let error = sealed_root(&next, &job, &["no-such-program".into()]).unwrap_err();
        assert!(error.to_string().contains("`no-such-program`"), "{error}");
    }
}
