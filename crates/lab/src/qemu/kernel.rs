// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels of the distribution with the emulator that runs them, made from packages that are
//! fetched and never installed.
//!
//! ```text
//! qemu-6.12.95+deb12-amd64-0123456789abcdef/
//!   vmlinux         the kernel, unpacked, so that it is neither unpacked nor moved at a boot
//!   modules.cpio    its modules, as the kernel unpacks them at boot
//!   config          its configuration
//!   about.json      what it is (`About`)
//! emulator-0123456789abcdef/
//!   usr/...         the emulator, its libraries and firmware, and ptp4l
//!   emulator.json   which versions (`Emulator`)
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::modules::Modules;
use super::{decompress, image};
use crate::LabError;
use crate::cache::{self, Work};
use crate::deb::{self, Offer, Packages, numbers};

/// Version of `about.json` and `emulator.json`.
const SCHEMA: &str = "timewire.lab-qemu/1";
/// The oldest emulator that has the NIC: its major and its minor version.
const OLDEST_EMULATOR: (u32, u32) = (8, 1);
/// The kernel's package: its newest version names the real one.
const KERNEL_PACKAGE: &str = "linux-image-amd64";
/// The emulator's package.
const EMULATOR_PACKAGE: &str = "qemu-system-x86";

/// What a kernel is; `about.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Format and version.
    pub schema: String,
    /// What `uname -r` says inside.
    pub release: String,
    /// The package it was made from,
    pub package: String,
    /// and that package's version.
    pub package_version: String,
    /// Fingerprint of its configuration.
    pub configuration: String,
    /// What was wanted of it and is not there.
    pub missing_modules: Vec<String>,
    /// The directory of the emulator, beside this one.
    pub emulator: String,
    /// The version of its package.
    pub emulator_version: String,
}

/// An emulator; `emulator.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Emulator {
    schema: String,
    version: String,
}

/// A kernel and its emulator, ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    directory: PathBuf,
    about: About,
}

impl Kernel {
    /// All that are in the cache, newest last.
    ///
    /// **Errors**: the cache cannot be used.
    pub fn cached() -> Result<Vec<Kernel>, LabError> {
        let dir = cache::kernels()?;
        let entries = fs::read_dir(&dir).map_err(LabError::file("read", &dir))?.flatten();
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with("qemu-"));
        let mut kernels: Vec<_> = ours.filter_map(|entry| Kernel::open(&entry.path())).collect();
        kernels.sort_by_key(|kernel| (numbers(&kernel.about.release), kernel.directory.clone()));
        Ok(kernels)
    }

    /// The newest one in the cache, of a series such as `6.12` if one is named.
    ///
    /// **Errors**: there is none; the error says how to get one.
    pub fn find(series: Option<&str>) -> Result<Kernel, LabError> {
        let fits = |kernel: &Kernel| {
            kernel.is_of_this_version()
                && series.is_none_or(|series| is_of_series(&kernel.about.release, series))
        };
        Kernel::cached()?.into_iter().rfind(fits).ok_or_else(|| LabError::NoKernel {
            series: series.unwrap_or("for the emulator").to_owned(),
            command: match series {
                Some(series) => format!("timewire lab qemu --kernel {series}"),
                None => "timewire lab qemu".to_owned(),
            },
        })
    }

    /// The one in the cache, or else fetches the newest one that the distribution has, of a series
    /// if one is named. `progress` is told each step.
    ///
    /// **Errors**: the packages are missing or not as expected; the cache is as it was.
    pub fn prepare(
        series: Option<&str>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Kernel, LabError> {
        Kernel::find(series).or_else(|_| Kernel::fetch(series, progress))
    }

    /// Fetches the newest kernel that the distribution has, of a series if one is named, unless it
    /// is in the cache already.
    ///
    /// **Errors**: as [`Kernel::prepare`].
    pub fn fetch(series: Option<&str>, progress: &mut dyn FnMut(&str)) -> Result<Kernel, LabError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(LabError::Missing {
                what: "an x86-64 processor's packages".to_owned(),
                remedy: "the emulated machine is an x86-64 one; run it on such a host".to_owned(),
            });
        }
        let mut packages = Packages::update(&["backports"], progress)?;
        let offer = choose_kernel(&packages.versions(KERNEL_PACKAGE)?, series)?;
        let depends = packages.depends(KERNEL_PACKAGE, &offer.version)?;
        let package = real_package(&depends).ok_or_else(|| LabError::Packages {
            what: format!("find the kernel of {KERNEL_PACKAGE} {}", offer.version),
            why: format!("it depends on `{depends}`"),
        })?;
        let (emulator, emulator_version) = fetch_emulator(&mut packages, progress)?;
        let print = fingerprint(&offer.version, &emulator);
        let release = package.trim_start_matches("linux-image-").to_owned();
        let directory = cache::kernels()?.join(format!("qemu-{release}-{print}"));
        if let Some(kernel) = Kernel::open(&directory) {
            return Ok(kernel);
        }
        let work = Work::begin()?;
        let size = packages.candidate(&package)?.map_or(0, |candidate| candidate.size);
        progress(&format!("downloading {package} {} ({} MB)", offer.version, size / 1_000_000));
        let wanted = format!("{package}={}", offer.version);
        let files = packages.download(&[&wanted], work.path())?;
        drop(packages);
        let (tree, made) = (work.path().join("tree"), work.path().join("made"));
        progress("unpacking the kernel and its modules");
        files.iter().try_for_each(|file| deb::unpack(file, &tree))?;
        let (configuration, missing_modules) = collect(&tree, &release, &made)?;
        let about = About {
            schema: SCHEMA.to_owned(),
            release,
            package,
            package_version: offer.version,
            configuration: cache::fingerprint(&[&configuration]),
            missing_modules,
            emulator,
            emulator_version,
        };
        install(&made, &directory, "about.json", &about)?;
        Ok(Kernel { directory, about })
    }

    fn open(directory: &Path) -> Option<Kernel> {
        let text = fs::read_to_string(directory.join("about.json")).ok()?;
        let about: About = serde_json::from_str(&text).ok()?;
        let kernel = Kernel { directory: directory.to_owned(), about };
        let files = [kernel.vmlinux(), kernel.modules(), kernel.emulator()];
        let whole = kernel.about.schema == SCHEMA && files.iter().all(|file| file.is_file());
        whole.then_some(kernel)
    }

    /// One with other modules than this program's belongs to another version of it.
    fn is_of_this_version(&self) -> bool {
        let print = fingerprint(&self.about.package_version, &self.about.emulator);
        self.directory.to_string_lossy().ends_with(&print)
    }

    /// What it is.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The kernel's configuration.
    pub fn config(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// A program that came with the emulator, such as `usr/sbin/ptp4l`.
    pub fn tool(&self, path: &str) -> PathBuf {
        self.emulator_root().join(path)
    }

    pub(super) fn vmlinux(&self) -> PathBuf {
        self.directory.join("vmlinux")
    }

    pub(super) fn modules(&self) -> PathBuf {
        self.directory.join("modules.cpio")
    }

    pub(super) fn emulator(&self) -> PathBuf {
        self.emulator_root().join(EMULATOR)
    }

    fn emulator_root(&self) -> PathBuf {
        self.directory.with_file_name(&self.about.emulator)
    }

    /// The emulator with its libraries and its firmware, from where they were unpacked.
    pub(super) fn emulator_command(&self) -> Command {
        let root = self.emulator_root();
        let mut command = Command::new(self.emulator());
        let mut libraries = OsString::new();
        for directory in ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"] {
            libraries.push(root.join(directory));
            libraries.push(":");
        }
        command.env("LD_LIBRARY_PATH", libraries);
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            command.arg("-L").arg(root.join(firmware));
        }
        command
    }
}

const EMULATOR: &str = "usr/bin/qemu-system-x86_64";

/// A number that changes with what a kernel's directory is made from.
fn fingerprint(package_version: &str, emulator: &str) -> String {
    cache::fingerprint(&[package_version, emulator, &image::WANTED.join(" ")])
}

/// The newest kernel on offer, of a series if one is named.
fn choose_kernel(offers: &[Offer], series: Option<&str>) -> Result<Offer, LabError> {
    let fits = |offer: &&Offer| series.is_none_or(|s| is_of_series(&offer.version, s));
    let newest = offers.iter().filter(fits).max_by_key(|offer| numbers(&offer.version));
    newest.cloned().ok_or_else(|| {
        let mut known: Vec<_> = offers.iter().map(|offer| offer.version.as_str()).collect();
        known.dedup();
        LabError::Missing {
            what: match series {
                Some(series) => format!("a kernel {series} in {KERNEL_PACKAGE}"),
                None => format!("the package {KERNEL_PACKAGE}"),
            },
            remedy: match known.as_slice() {
                [] => "the kernel is Debian's: use Debian or one of its descendants".to_owned(),
                known => format!("this distribution has: {}", known.join(", ")),
            },
        }
    })
}

/// The package that the meta-package stands for.
fn real_package(depends: &str) -> Option<String> {
    let names = depends.split([',', '|']).filter_map(|part| part.split_whitespace().next());
    let mut kernels = names.filter(|name| {
        name.starts_with("linux-image-") && name.contains(|c: char| c.is_ascii_digit())
    });
    kernels.next().map(str::to_owned)
}

/// The directory of the emulator in the cache, and its version.
fn fetch_emulator(
    packages: &mut Packages,
    progress: &mut dyn FnMut(&str),
) -> Result<(String, String), LabError> {
    let offers = packages.versions(EMULATOR_PACKAGE)?;
    let fits = |offer: &&Offer| emulator_version(&offer.version) >= Some(OLDEST_EMULATOR);
    let Some(offer) = offers.iter().filter(fits).max_by_key(|o| numbers(&o.version)) else {
        let (major, minor) = OLDEST_EMULATOR;
        return Err(LabError::Missing {
            what: format!("{EMULATOR_PACKAGE} {major}.{minor} or later, which has the NIC igb"),
            remedy: "Debian 12 has it in its backports, on the same mirrors; later ones have it"
                .to_owned(),
        });
    };
    packages.prefer(&offer.suite);
    // Where the host has an emulator, this is another one all the same, started from the cache.
    packages.hide_installed(&["qemu-", "seabios", "ipxe-qemu", "linuxptp"])?;
    let closure = packages.closure(&[EMULATOR_PACKAGE, "linuxptp"])?;
    let names: Vec<_> = closure.iter().map(String::as_str).collect();
    let name = format!("emulator-{}", cache::fingerprint(&[&offer.version, &names.join(" ")]));
    let directory = cache::kernels()?.join(&name);
    let of_version = |text: String| serde_json::from_str::<Emulator>(&text).ok();
    let there = fs::read_to_string(directory.join("emulator.json")).ok().and_then(of_version);
    if there.is_some_and(|emulator| emulator.schema == SCHEMA) {
        return Ok((name, offer.version.clone()));
    }
    let work = Work::begin()?;
    progress(&format!(
        "downloading {EMULATOR_PACKAGE} {} and {} packages that it needs (about 16 MB)",
        offer.version,
        names.len().saturating_sub(1)
    ));
    let made = work.path().join("made");
    for file in packages.download(&names, work.path())? {
        deb::unpack(&file, &made)?;
    }
    if !made.join(EMULATOR).is_file() {
        return Err(LabError::Packages {
            what: format!("use {EMULATOR_PACKAGE} {}", offer.version),
            why: format!("it has no {EMULATOR}"),
        });
    }
    let emulator = Emulator { schema: SCHEMA.to_owned(), version: offer.version.clone() };
    install(&made, &directory, "emulator.json", &emulator)?;
    Ok((name, offer.version.clone()))
}

/// Makes the files of a kernel from its unpacked package; its configuration, and what it lacks.
fn collect(tree: &Path, release: &str, made: &Path) -> Result<(String, Vec<String>), LabError> {
    fs::create_dir_all(made).map_err(LabError::file("create", made))?;
    let file = |name: &str| tree.join("boot").join(format!("{name}-{release}"));
    let config = file("config");
    let configuration = fs::read_to_string(&config).map_err(LabError::file("read", &config))?;
    let boot = file("vmlinuz");
    let bytes = fs::read(&boot).map_err(LabError::file("read", &boot))?;
    // Debian has moved /lib into /usr, package by package.
    let modules = ["usr/lib/modules", "lib/modules"].map(|dir| tree.join(dir).join(release));
    let modules = modules.iter().find(|dir| dir.is_dir()).unwrap_or(&modules[0]);
    let (archive, missing) = image::modules_archive(&Modules::scan(modules)?)?;
    for (name, content) in [
        ("vmlinux", decompress::vmlinux(&boot, &bytes)?),
        ("modules.cpio", archive),
        ("config", configuration.clone().into_bytes()),
    ] {
        let path = made.join(name);
        fs::write(&path, content).map_err(LabError::file("write", &path))?;
    }
    Ok((configuration, missing))
}

/// Says what it is, and moves it to its place.
fn install(
    made: &Path,
    directory: &Path,
    name: &str,
    about: &impl Serialize,
) -> Result<(), LabError> {
    let path = made.join(name);
    let text = serde_json::to_string_pretty(about).expect("invariant: plain texts");
    fs::write(&path, text + "\n").map_err(LabError::file("write", &path))?;
    // An older, damaged one of the same name: it did not open.
    let _ = fs::remove_dir_all(directory);
    fs::rename(made, directory).map_err(LabError::file("create", directory))
}

/// `6.12.95+deb12-amd64` is of `6.12`, and of `6`.
fn is_of_series(version: &str, series: &str) -> bool {
    let (version, series) = (numbers(version), numbers(series));
    !series.is_empty() && version.starts_with(&series)
}

/// Major and minor version of a package, without its epoch.
fn emulator_version(version: &str) -> Option<(u32, u32)> {
    let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
    let mut numbers = upstream.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use timewire_base::Failure as _;

    use super::*;

    fn offer(version: &str) -> Offer {
        Offer { version: version.to_owned(), suite: "x".to_owned() }
    }

    #[test]
    fn t0_the_newest_kernel_of_a_series_is_chosen() {
        let offers = ["6.12.95-1~bpo12+1", "6.1.192-2", "6.1.176-1"].map(offer);
        let chosen = |series| choose_kernel(&offers, series).map(|offer| offer.version);
        assert_eq!(chosen(None).unwrap(), "6.12.95-1~bpo12+1");
        assert_eq!(chosen(Some("6.1")).unwrap(), "6.1.192-2");
        let error = chosen(Some("5.10")).unwrap_err();
        assert!(error.to_string().contains("a kernel 5.10"), "{error}");
        assert!(error.hint().unwrap().contains("6.1.192-2"), "{error}");
        assert!(choose_kernel(&[], None).is_err());
        assert!(chosen(Some("x")).is_err());
    }

    #[test]
    fn t0_the_meta_package_names_the_kernel() {
        let real = |text: &str| real_package(text);
        let depends = "linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)";
        assert_eq!(real(depends).as_deref(), Some("linux-image-6.12.95+deb12-amd64"));
        assert_eq!(real("linux-base (>= 4), linux-image-generic"), None);
    }

    #[test]
    fn t0_versions_are_compared_by_their_numbers() {
        assert!(numbers("6.12.95") > numbers("6.1.192"));
        assert!(is_of_series("6.12.95+deb12-amd64", "6.12"));
        assert!(!is_of_series("6.12.95+deb12-amd64", "6.1"));
        assert_eq!(emulator_version("1:10.0.2+ds-2+deb13u1~bpo12+1"), Some((10, 0)));
        assert!(emulator_version("1:7.2+dfsg-7") < Some(OLDEST_EMULATOR));
    }
}
