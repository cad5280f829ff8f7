// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laboratory's kernels: User-Mode Linux, built from the distribution's kernel source with time
//! travel and every queueing discipline of interest, or the distribution's own build of it, which
//! runs at wall speed only.
//!
//! A kernel is kept in the cache under a name made from what it was built from: version of the
//! package, configuration, compiler.
//!
//! ```text
//! uml-6.12.117-0123456789abcdef/
//!   linux         the kernel: a program of the host
//!   config        its configuration
//!   about.json    what it is (`About`)
//!   selftests/    the kernel's own tests of what it has: tc-testing, net
//!   modules/      of the distribution's build: its modules
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use super::config::{self, Series};
use crate::cache::{self, Work};
use crate::deb::{self, Candidate, Packages, numbers};
use crate::{LabError, tools};

/// Version of `about.json`.
const ABOUT_SCHEMA: &str = "timewire.lab-kernel/1";
/// The kernel series that is built when nobody says which.
pub const DEFAULT_SERIES: &str = "6.12";
/// Programs that the build needs, each with its Debian package.
pub const BUILD_TOOLS: [(&str, &str); 8] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("tar", "tar"),
    ("xz", "xz-utils"),
];

/// Where a kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Built here from the distribution's source: with time travel.
    Source,
    /// Built by the distribution: without time travel.
    Prebuilt,
}

/// What a kernel is; `about.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Format and version.
    pub schema: String,
    /// Where it comes from.
    pub origin: Origin,
    /// The kernel's own version, such as `6.12.117`.
    pub release: String,
    /// The package it was made from,
    pub package: String,
    /// and that package's version.
    pub package_version: String,
    /// Fingerprint of its configuration.
    pub configuration: String,
    /// What compiled it.
    pub compiler: String,
    /// What of the wanted configuration it does not have.
    pub missing: Vec<String>,
}

impl About {
    /// Whether it can run in virtual time.
    pub fn has_time_travel(&self) -> bool {
        !self.missing.iter().any(|symbol| symbol == "CONFIG_UML_TIME_TRAVEL_SUPPORT")
    }
}

/// A kernel that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    directory: PathBuf,
    about: About,
}

impl Kernel {
    /// All that are in the cache, by series, then version, newest last.
    ///
    /// **Errors**: the cache cannot be used.
    pub fn cached() -> Result<Vec<Kernel>, LabError> {
        let dir = cache::kernels()?;
        let entries = fs::read_dir(&dir).map_err(LabError::file("read", &dir))?.flatten();
        let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with("uml-"));
        let mut kernels: Vec<_> = ours.filter_map(|entry| Kernel::open(&entry.path())).collect();
        let key = |kernel: &Kernel| (numbers(&kernel.about.release), kernel.directory.clone());
        kernels.sort_by_key(key);
        Ok(kernels)
    }

    /// The newest one of a series that can run in virtual time; without a series, of
    /// [`DEFAULT_SERIES`], or else the newest of all.
    ///
    /// **Errors**: there is none; the error says how to get one.
    pub fn find(series: Option<&str>) -> Result<Kernel, LabError> {
        let of_series = |kernel: &Kernel, series: &str| {
            Series::parse(&kernel.about.release).map(|s| s.to_string()).as_deref() == Some(series)
        };
        let fit = |kernel: &&Kernel| kernel.about.has_time_travel() && is_of_this_version(kernel);
        let all = Kernel::cached()?;
        let usual = all.iter().rfind(|k| fit(k) && of_series(k, series.unwrap_or(DEFAULT_SERIES)));
        let any = all.iter().filter(|_| series.is_none()).rfind(fit);
        usual.or(any).cloned().ok_or_else(|| LabError::NoKernel {
            series: series.unwrap_or(DEFAULT_SERIES).to_owned(),
            command: match series {
                Some(series) => format!("timewire lab uml --kernel {series}"),
                None => "timewire lab uml".to_owned(),
            },
        })
    }

    /// The distribution's own build, if it is in the cache.
    ///
    /// **Errors**: it is not; the error says how to get it.
    pub fn find_prebuilt() -> Result<Kernel, LabError> {
        let found = Kernel::cached()?.into_iter().rfind(|k| k.about.origin == Origin::Prebuilt);
        found.ok_or_else(|| LabError::NoKernel {
            series: "prebuilt".to_owned(),
            command: "timewire lab uml --prebuilt".to_owned(),
        })
    }

    fn open(directory: &Path) -> Option<Kernel> {
        let text = fs::read_to_string(directory.join("about.json")).ok()?;
        let about: About = serde_json::from_str(&text).ok()?;
        let whole = about.schema == ABOUT_SCHEMA && directory.join("linux").is_file();
        whole.then(|| Kernel { directory: directory.to_owned(), about })
    }

    /// What it is.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Its name in the cache.
    pub fn name(&self) -> String {
        self.directory.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    }

    /// The program.
    pub fn program(&self) -> PathBuf {
        self.directory.join("linux")
    }

    /// Its configuration.
    pub fn config(&self) -> PathBuf {
        self.directory.join("config")
    }

    /// The kernel's own tests, as in `tools/testing/selftests` of its source; of a kernel that was
    /// built from it.
    pub fn selftests(&self) -> Option<PathBuf> {
        Some(self.directory.join("selftests")).filter(|path| path.is_dir())
    }

    /// The modules that a machine loads at its start, in order.
    pub fn modules(&self) -> Vec<PathBuf> {
        let list = fs::read_to_string(self.directory.join("modules/load")).unwrap_or_default();
        list.lines().map(|line| self.directory.join("modules").join(line)).collect()
    }

    /// Builds the newest kernel of a series that the distribution has the source of, unless it is
    /// in the cache already; without a series, of [`DEFAULT_SERIES`], or else the newest of all.
    /// `progress` is told each step.
    ///
    /// **Errors**: tools or the package are missing, or the build failed; the cache is as it was.
    pub fn build(series: Option<&str>, progress: &mut dyn FnMut(&str)) -> Result<Kernel, LabError> {
        if let Some(bad) = series.filter(|series| Series::parse(series).is_none()) {
            let why = format!("`{bad}` is no kernel series such as `{DEFAULT_SERIES}`");
            return Err(LabError::Spec { why });
        }
        let compiler = needs_build_tools()?;
        let packages = Packages::update(&["backports"], progress)?;
        let wanted =
            packages.candidate(&format!("{SOURCE}{}", series.unwrap_or(DEFAULT_SERIES)))?;
        let newest = match (&wanted, series) {
            (None, None) => newest_source(&packages)?,
            _ => None,
        };
        let Some(candidate) = wanted.or(newest) else {
            return Err(no_source(&packages, series.unwrap_or(DEFAULT_SERIES))?);
        };
        let name = candidate.name.clone();
        let series = name.strip_prefix(SOURCE).unwrap_or(DEFAULT_SERIES);
        let print = cache::fingerprint(&[&candidate.version, config::FRAGMENT, &compiler]);
        let release = candidate.version.split(['-', '~', '+']).next().unwrap_or_default();
        let directory = cache::kernels()?.join(format!("uml-{release}-{print}"));
        if let Some(kernel) = Kernel::open(&directory) {
            return Ok(kernel);
        }
        let work = Work::begin()?;
        progress(&format!("downloading {name} {} ({})", candidate.version, mb(candidate.size)));
        let files = packages.download(&[&name], work.path())?;
        drop(packages);
        let _one_at_a_time = cache::Lock::take("build", progress)?;
        if let Some(kernel) = Kernel::open(&directory) {
            return Ok(kernel);
        }
        let source = unpack_source(&work, &files, progress)?;
        let made = work.path().join("made");
        let build = Build { source: &source, output: work.path().join("build"), work: &work };
        let configuration = build.configure(series, progress)?;
        build.compile(progress)?;
        build.collect(&made, &configuration)?;
        let about = About {
            schema: ABOUT_SCHEMA.to_owned(),
            origin: Origin::Source,
            release: release.to_owned(),
            package: candidate.name,
            package_version: candidate.version,
            configuration: cache::fingerprint(&[&configuration]),
            compiler,
            missing: Vec::new(),
        };
        install(&made, &directory, &about)
    }

    /// Fetches the distribution's own build, unless it is in the cache already.
    ///
    /// **Errors**: the package is missing or not as expected; the cache is as it was.
    pub fn fetch_prebuilt(progress: &mut dyn FnMut(&str)) -> Result<Kernel, LabError> {
        let packages = Packages::update(&[], progress)?;
        let Some(candidate) = packages.candidate(PREBUILT)? else {
            return Err(LabError::Missing {
                what: format!("the package {PREBUILT}"),
                remedy: "only some distributions have it; `timewire lab uml` builds a kernel"
                    .to_owned(),
            });
        };
        let print = cache::fingerprint(&[PREBUILT, &candidate.version]);
        let release = candidate.version.split("um").next().unwrap_or_default().to_owned();
        let directory = cache::kernels()?.join(format!("uml-{release}-prebuilt-{print}"));
        if let Some(kernel) = Kernel::open(&directory) {
            return Ok(kernel);
        }
        let work = Work::begin()?;
        progress(&format!("downloading {PREBUILT} {} ({})", candidate.version, mb(candidate.size)));
        let files = packages.download(&[PREBUILT], work.path())?;
        drop(packages);
        let (tree, made) = (work.path().join("tree"), work.path().join("made"));
        for file in &files {
            deb::unpack(file, &tree)?;
        }
        let configuration = super::prebuilt::collect(&tree, &made)?;
        let series = Series::parse(&release).unwrap_or_else(|| {
            Series::parse(DEFAULT_SERIES).expect("invariant: the default is a series")
        });
        let about = About {
            schema: ABOUT_SCHEMA.to_owned(),
            origin: Origin::Prebuilt,
            release,
            configuration: cache::fingerprint(&[&configuration]),
            compiler: format!("{} of the distribution", candidate.name),
            package: candidate.name,
            package_version: candidate.version,
            missing: super::prebuilt::missing(series, &configuration),
        };
        install(&made, &directory, &about)
    }
}

/// A kernel of another configuration than this program's belongs to another version of it.
fn is_of_this_version(kernel: &Kernel) -> bool {
    let about = &kernel.about;
    let print = cache::fingerprint(&[&about.package_version, config::FRAGMENT, &about.compiler]);
    about.origin == Origin::Prebuilt || kernel.name().ends_with(&print)
}

fn install(made: &Path, directory: &Path, about: &About) -> Result<Kernel, LabError> {
    let path = made.join("about.json");
    let text = serde_json::to_string_pretty(about).expect("invariant: plain texts");
    fs::write(&path, text + "\n").map_err(LabError::file("write", &path))?;
    // An older, damaged one of the same name: it did not open.
    let _ = fs::remove_dir_all(directory);
    fs::rename(made, directory).map_err(LabError::file("create", directory))?;
    Ok(Kernel { directory: directory.to_owned(), about: about.clone() })
}

/// What compiles, in its own words.
fn needs_build_tools() -> Result<String, LabError> {
    let missing: Vec<_> = BUILD_TOOLS.iter().filter(|(tool, _)| !deb::have(tool)).collect();
    if !missing.is_empty() {
        let names: Vec<_> = missing.iter().map(|(tool, _)| format!("`{tool}`")).collect();
        let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
        return Err(LabError::Missing {
            what: format!("{}, needed to build a kernel", names.join(", ")),
            remedy: format!("apt-get install --no-install-recommends {}", packages.join(" ")),
        });
    }
    let output = Command::new("gcc").arg("--version").output();
    let output = output.map_err(LabError::file("run", Path::new("gcc")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn no_source(packages: &Packages, series: &str) -> Result<LabError, LabError> {
    let names = packages.names(SOURCE)?;
    let known: Vec<_> = names.iter().filter_map(|name| name.strip_prefix(SOURCE)).collect();
    let remedy = match known.as_slice() {
        [] => "enable the distribution's main archive in /etc/apt/sources.list.d".to_owned(),
        known => format!("this distribution has the source of: {}", known.join(", ")),
    };
    Ok(LabError::Missing { what: format!("the package linux-source-{series}"), remedy })
}

/// The directory of the kernel's source.
fn unpack_source(
    work: &Work,
    files: &[PathBuf],
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, LabError> {
    let tree = work.path().join("tree");
    for file in files {
        deb::unpack(file, &tree)?;
    }
    let archives = tree.join("usr/src");
    let archive = fs::read_dir(&archives)
        .map_err(LabError::file("read", &archives))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(".tar.xz"))
        .ok_or_else(|| LabError::Packages {
            what: "find the kernel's source".to_owned(),
            why: "the package has no .tar.xz in usr/src".to_owned(),
        })?;
    progress("unpacking the source");
    let source = work.path().join("source");
    fs::create_dir(&source).map_err(LabError::file("create", &source))?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--file"]).arg(&archive);
    tar.arg("--directory").arg(&source);
    run_logged(tar, work, "unpacking the source", &mut |_| {})?;
    for done in [&archive, &tree] {
        let _ = fs::remove_file(done);
        let _ = fs::remove_dir_all(done);
    }
    Ok(source)
}

struct Build<'a> {
    source: &'a Path,
    output: PathBuf,
    work: &'a Work,
}

impl Build<'_> {
    fn make(&self) -> Command {
        let mut make = Command::new("make");
        make.arg("-C").arg(self.source).arg("ARCH=um").arg(format!("O={}", self.output.display()));
        // What a user has set for other builds is not for this one.
        for variable in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CFLAGS", "LDFLAGS", "CC", "ARCH"] {
            make.env_remove(variable);
        }
        make.env("LC_ALL", "C").env("KBUILD_BUILD_TIMESTAMP", "@0");
        make.env("KBUILD_BUILD_USER", "timewire").env("KBUILD_BUILD_HOST", "lab");
        make
    }

    /// The configuration that came of the fragment, checked.
    fn configure(&self, series: &str, progress: &mut dyn FnMut(&str)) -> Result<String, LabError> {
        progress("configuring");
        let fragment = self.work.path().join("fragment");
        fs::write(&fragment, config::FRAGMENT).map_err(LabError::file("write", &fragment))?;
        let mut make = self.make();
        make.arg("allnoconfig").env("KCONFIG_ALLCONFIG", &fragment);
        run_logged(make, self.work, "configuring the kernel", &mut |_| {})?;
        let path = self.output.join(".config");
        let configuration = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        let series = Series::parse(series).expect("invariant: checked at the start");
        let missing = config::missing(series, &configuration);
        if missing.is_empty() {
            return Ok(configuration);
        }
        Err(LabError::Build {
            step: "configuring the kernel".to_owned(),
            why: format!("its source does not offer {}", missing.join(", ")),
        })
    }

    fn compile(&self, progress: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        let jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut make = self.make();
        make.arg(format!("-j{jobs}")).arg("linux");
        let mut files = 0_u32;
        progress("compiling");
        run_logged(make, self.work, "compiling the kernel", &mut |line| {
            if line.trim_start().starts_with("CC ") {
                files += 1;
                progress(&format!("compiling: {files} of about {FILES} files"));
            }
        })
    }

    /// Puts what is kept into a directory of its own.
    fn collect(&self, made: &Path, configuration: &str) -> Result<(), LabError> {
        fs::create_dir(made).map_err(LabError::file("create", made))?;
        let (built, linux) = (self.output.join("linux"), made.join("linux"));
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&linux).arg(&built);
        run_logged(strip, self.work, "stripping the kernel", &mut |_| {})?;
        let config = made.join("config");
        fs::write(&config, configuration).map_err(LabError::file("write", &config))?;
        let from = self.source.join("tools/testing/selftests");
        let to = made.join("selftests");
        fs::create_dir(&to).map_err(LabError::file("create", &to))?;
        for part in ["kselftest.h", "tc-testing", "net"] {
            let mut copy = Command::new("cp");
            copy.arg("--recursive").arg(from.join(part)).arg(&to);
            run_logged(copy, self.work, "keeping the kernel's tests", &mut |_| {})?;
        }
        Ok(())
    }
}

/// Runs a part of a build; each line it says goes to `on_line`. Errors name its last words.
pub(super) fn run_logged(
    mut command: Command,
    work: &Work,
    step: &str,
    on_line: &mut dyn FnMut(&str),
) -> Result<(), LabError> {
    let failed = |why: String| LabError::Build { step: step.to_owned(), why };
    let path = work.path().join("errors.log");
    let errors = File::create(&path).map_err(LabError::file("create", &path))?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = tools::spawn(command)
        .map_err(|error| failed(format!("cannot start {program}: {error}")))?;
    let stdout = child.stdout.take().expect("invariant: standard output was piped");
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        on_line(&line);
    }
    let status = tools::wait(&mut child).map_err(|error| failed(error.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<_> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(ERROR_LINES)..].join("\n");
    Err(failed(format!("{program} ended with {status}\n{last}")))
}

/// The newest kernel that the distribution has the source of.
fn newest_source(packages: &Packages) -> Result<Option<Candidate>, LabError> {
    let names = packages.names(SOURCE)?;
    let of_series = names.iter().filter(|name| {
        name.strip_prefix(SOURCE).is_some_and(|series| Series::parse(series).is_some())
    });
    let found: Result<Vec<_>, _> = of_series.map(|name| packages.candidate(name)).collect();
    let found = found?.into_iter().flatten();
    Ok(found.max_by_key(|candidate| numbers(&candidate.version)))
}

fn mb(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// How packages of kernel sources begin; the series follows.
const SOURCE: &str = "linux-source-";
const PREBUILT: &str = "user-mode-linux";
/// Files that a build of the laboratory's configuration compiles, for progress only.
const FILES: u32 = 920;
const ERROR_LINES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_versions_are_ordered_by_number() {
        assert!(numbers("6.12.117") > numbers("6.2.9"));
        assert!(numbers("6.12.117") > numbers("6.12.95-1~bpo12+1"));
    }

    #[test]
    fn t0_a_kernel_without_time_travel_says_so() {
        let mut about = About {
            schema: ABOUT_SCHEMA.to_owned(),
            origin: Origin::Source,
            release: "6.12.117".to_owned(),
            package: "linux-source-6.12".to_owned(),
            package_version: "6.12.117-1".to_owned(),
            configuration: "0".to_owned(),
            compiler: "gcc".to_owned(),
            missing: Vec::new(),
        };
        assert!(about.has_time_travel());
        about.missing.push("CONFIG_UML_TIME_TRAVEL_SUPPORT".to_owned());
        assert!(!about.has_time_travel());
    }
}
