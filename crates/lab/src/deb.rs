// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Getting packages of the distribution without installing them: a package state of our own in the
//! cache, so that neither root nor a change of the system is needed. What is downloaded is checked
//! by apt against the distribution's signatures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;
use crate::{LabError, cache};

/// A package as it can be had now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// **Units**: bytes to download.
    pub size: u64,
}

/// The package lists of the distribution, in a state of our own.
#[derive(Debug)]
pub struct Packages {
    state: PathBuf,
    /// The suite whose versions are taken before all others.
    preferred: Option<String>,
    /// What is installed.
    status: PathBuf,
    _lock: cache::Lock,
}

impl Packages {
    /// Reads the lists of the host's own sources, and of `suites` beside them, such as `backports`
    /// on the same mirrors.
    ///
    /// **Errors**: this system has no apt, or no source can be reached.
    pub fn update(suites: &[&str], progress: &mut dyn FnMut(&str)) -> Result<Packages, LabError> {
        let missing: Vec<_> =
            ["apt-get", "apt-cache", "dpkg-deb"].into_iter().filter(|tool| !have(tool)).collect();
        if !missing.is_empty() {
            return Err(LabError::Missing {
                what: format!("`{}`", missing.join("`, `")),
                remedy: "packages are fetched with apt: use Debian or one of its descendants, or \
                         set TIMEWIRE_CACHE to a cache that was filled on one"
                    .to_owned(),
            });
        }
        let lock = cache::Lock::take("apt", progress)?;
        let state = cache::root()?.join("apt");
        for part in ["lists/partial", "archives/partial", "parts"] {
            let path = state.join(part);
            fs::create_dir_all(&path).map_err(LabError::file("create", &path))?;
        }
        let status = PathBuf::from(STATUS);
        let packages = Packages { state, preferred: None, status, _lock: lock };
        packages.write_sources(suites)?;
        progress("reading the package lists");
        // A source that fails need not be the one that is wanted; the look-up tells.
        let _ = packages.apt("apt-get", &["-qq", "update"], Path::new("/"))?;
        Ok(packages)
    }

    /// The host's sources, and those of the other suites.
    fn write_sources(&self, suites: &[&str]) -> Result<(), LabError> {
        let parts = self.state.join("parts");
        let _ = fs::remove_dir_all(&parts);
        fs::create_dir_all(&parts).map_err(LabError::file("create", &parts))?;
        let mut mirrors = Vec::new();
        let list = PathBuf::from("/etc/apt/sources.list");
        let of_host = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        for from in of_host.map(|entry| entry.path()).chain([list]) {
            let known = ["list", "sources"];
            let kind = from.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
            let Ok(text) = fs::read_to_string(&from) else { continue };
            if !known.contains(&kind) {
                continue;
            }
            mirrors.extend(mirrors_of(&text));
            if let Some(name) = from.file_name() {
                let to = parts.join(name);
                fs::write(&to, text).map_err(LabError::file("write", &to))?;
            }
        }
        let codename = codename().unwrap_or_default();
        // Some releases trust this key ring by default, others only where it is named.
        let signed = match Path::new(KEYRING).exists() {
            true => format!("[signed-by={KEYRING}] "),
            false => String::new(),
        };
        let mut extra = String::new();
        for suite in suites {
            for mirror in &mirrors {
                extra += &format!("deb {signed}{mirror} {codename}-{suite} main\n");
            }
        }
        let to = parts.join("timewire.list");
        fs::write(&to, extra).map_err(LabError::file("write", &to))
    }

    /// Takes the versions of this suite before all others from now on.
    pub fn prefer(&mut self, suite: &str) {
        self.preferred = Some(suite.to_owned());
    }

    /// Takes packages that begin like this as not installed from now on, so that what is needed
    /// includes them.
    ///
    /// **Errors**: the list of what is installed cannot be read or copied.
    pub fn hide_installed(&mut self, prefixes: &[&str]) -> Result<(), LabError> {
        let installed = Path::new(STATUS);
        let text = fs::read_to_string(installed).map_err(LabError::file("read", installed))?;
        let path = self.state.join("status");
        fs::write(&path, without(&text, prefixes)).map_err(LabError::file("write", &path))?;
        self.status = path;
        Ok(())
    }

    /// Every version of a package that can be had.
    ///
    /// **Shape**: as apt lists them, the newest first, one for each suite that has it.
    ///
    /// **Errors**: apt does not answer.
    pub fn versions(&self, name: &str) -> Result<Vec<Offer>, LabError> {
        let text = self.apt("apt-cache", &["madison", name], Path::new("/"))?;
        Ok(text.output.lines().filter_map(offer_of).collect())
    }

    /// What a version of a package depends on, as its control file says.
    ///
    /// **Errors**: apt does not answer, or has no such version.
    pub fn depends(&self, name: &str, version: &str) -> Result<String, LabError> {
        let wanted = format!("{name}={version}");
        let said = self.apt("apt-cache", &["show", &wanted], Path::new("/"))?;
        let line = said.output.lines().find_map(|line| line.strip_prefix("Depends: "));
        line.map(str::to_owned).ok_or_else(|| self.failed(&format!("look up {wanted}"), &said))
    }

    /// The newest version of a package, if there is one.
    ///
    /// **Errors**: apt does not answer.
    pub fn candidate(&self, name: &str) -> Result<Option<Candidate>, LabError> {
        let text = self.apt("apt-cache", &["show", "--no-all-versions", name], Path::new("/"))?;
        Ok(candidate_of(&text.output))
    }

    /// The names of all packages that begin like this.
    ///
    /// **Errors**: apt does not answer.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, LabError> {
        let text = self.apt("apt-cache", &["pkgnames", prefix], Path::new("/"))?;
        let mut names: Vec<_> = text.output.lines().map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// The packages that must be there for these to work, themselves included; not those that every
    /// system has.
    ///
    /// **Errors**: apt finds no solution.
    pub fn closure(&self, names: &[&str]) -> Result<Vec<String>, LabError> {
        let mut arguments = vec!["-s", "-y", "--no-install-recommends", "install"];
        arguments.extend(names);
        let said = self.apt("apt-get", &arguments, Path::new("/"))?;
        if !said.ok {
            return Err(self.failed(&format!("find what {} needs", names.join(", ")), &said));
        }
        let lines = said.output.lines().filter_map(|line| line.strip_prefix("Inst "));
        Ok(lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }

    /// Downloads packages into a directory; their files.
    ///
    /// **Errors**: there is no such package, or the download failed.
    pub fn download(&self, names: &[&str], into: &Path) -> Result<Vec<PathBuf>, LabError> {
        let mut arguments = vec!["-q", "download"];
        arguments.extend(names);
        let said = self.apt("apt-get", &arguments, into)?;
        if !said.ok {
            return Err(self.failed(&format!("download {}", names.join(", ")), &said));
        }
        let mut files: Vec<_> = fs::read_dir(into)
            .map_err(LabError::file("read", into))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "deb"))
            .collect();
        files.sort();
        Ok(files)
    }

    fn failed(&self, what: &str, said: &Said) -> LabError {
        let words = said.errors.lines().filter(|line| line.starts_with("E:"));
        let words: Vec<_> = words.map(|line| line.trim_start_matches("E: ")).collect();
        LabError::Packages { what: what.to_owned(), why: words.join("; ") }
    }

    fn apt(&self, program: &str, arguments: &[&str], directory: &Path) -> Result<Said, LabError> {
        let state = self.state.display();
        let settings = [
            format!("Dir::State={state}"),
            format!("Dir::State::status={}", self.status.display()),
            format!("Dir::State::lists={state}/lists"),
            format!("Dir::Cache={state}"),
            format!("Dir::Cache::archives={state}/archives"),
            "Dir::Etc::sourcelist=/nonexistent".to_owned(),
            format!("Dir::Etc::sourceparts={state}/parts"),
            "Debug::NoLocking=1".to_owned(),
            // The directory is ours alone; the download needs no user of its own.
            "APT::Sandbox::User=".to_owned(),
            "APT::Get::List-Cleanup=0".to_owned(),
        ];
        let mut command = Command::new(program);
        for setting in &settings {
            command.args(["-o", setting]);
        }
        if let Some(suite) = &self.preferred {
            command.args(["-o", &format!("APT::Default-Release={suite}")]);
        }
        command.args(arguments).current_dir(directory).env("LC_ALL", "C");
        let output = tools::output(command).map_err(|error| LabError::Packages {
            what: format!("start {program}"),
            why: error.to_string(),
        })?;
        Ok(Said {
            ok: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// A version of a package, and where it can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The version.
    pub version: String,
    /// The suite, such as `bookworm-backports`.
    pub suite: String,
}

/// A line of `apt-cache madison`: `NAME | VERSION | URL SUITE/COMPONENT ARCHITECTURE Packages`.
fn offer_of(line: &str) -> Option<Offer> {
    let mut fields = line.split('|').map(str::trim);
    let (_, version, place) = (fields.next()?, fields.next()?, fields.next()?);
    let mut words = place.split(' ');
    let (suite, _) = words.nth(1)?.split_once('/')?;
    let of_binary = words.next_back() == Some("Packages");
    of_binary.then(|| Offer { version: version.to_owned(), suite: suite.to_owned() })
}

struct Said {
    ok: bool,
    output: String,
    errors: String,
}

/// Unpacks a package's files below a directory.
///
/// **Errors**: the file is no package, or there is no room.
pub fn unpack(package: &Path, into: &Path) -> Result<(), LabError> {
    let failed =
        |why: String| LabError::Packages { what: format!("unpack {}", package.display()), why };
    let mut command = Command::new("dpkg-deb");
    command.arg("--extract").args([package, into]);
    let output = tools::output(command).map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The numbers of a version, for comparison: `1:10.0.2+ds-2` is 1, 10, 0, 2, 2.
pub(crate) fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|part| part.parse().ok()).collect()
}

/// Whether a program is in `PATH` or where administrators' programs are.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|dir| dir.join(program).is_file())
}

/// The mirrors that a file of sources names for Debian's own archive.
fn mirrors_of(text: &str) -> Vec<String> {
    let words = |line: &str| -> Vec<String> {
        let words = line.split_whitespace().map(|word| word.trim_end_matches('/').to_owned());
        words.filter(|word| word.ends_with("/debian")).collect()
    };
    let lines = text.lines().map(str::trim);
    let of_lines = lines.filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let mut mirrors: Vec<String> = of_lines.flat_map(words).collect();
    mirrors.dedup();
    mirrors
}

fn codename() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).map(str::to_owned)
}

fn candidate_of(shown: &str) -> Option<Candidate> {
    let field = |name: &str| {
        let found = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found.map(str::to_owned)
    };
    Some(Candidate {
        name: field("Package")?,
        version: field("Version")?,
        size: field("Size")?.parse().ok()?,
    })
}

/// A list of installed packages without those that begin like this.
fn without(status: &str, prefixes: &[&str]) -> String {
    let hidden = |entry: &&str| {
        let name = entry.lines().find_map(|line| line.strip_prefix("Package: "));
        name.is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    let kept = status.split("\n\n").filter(|entry| !hidden(entry));
    kept.collect::<Vec<_>>().join("\n\n")
}

const STATUS: &str = "/var/lib/dpkg/status";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_a_candidate_is_read_from_what_apt_shows() {
        let shown = "Package: linux-source-6.12\nVersion: 6.12.117-1~deb12u1\nSize: 153000000\n";
        let candidate = candidate_of(shown).unwrap();
        assert_eq!(candidate.version, "6.12.117-1~deb12u1");
        assert_eq!(candidate.size, 153_000_000);
        assert_eq!(candidate_of(""), None);
    }

    #[test]
    fn t0_an_offer_is_read_with_its_suite() {
        let line = "linux-image-amd64 | 6.12.95-1~bpo12+1 | http://deb.debian.org/debian \
                    bookworm-backports/main amd64 Packages";
        let offer = offer_of(line).unwrap();
        assert_eq!(offer.version, "6.12.95-1~bpo12+1");
        assert_eq!(offer.suite, "bookworm-backports");
        assert_eq!(offer_of(&line.replace("Packages", "Sources")), None);
        assert_eq!(offer_of("N: no package"), None);
    }

    #[test]
    fn t0_installed_packages_can_be_hidden() {
        let status = "Package: qemu-utils\nStatus: x\n\nPackage: libc6\nStatus: y\n\n";
        assert_eq!(without(status, &["qemu-"]), "Package: libc6\nStatus: y\n\n");
        assert_eq!(without(status, &[]), status);
    }

    #[test]
    fn t0_mirrors_are_found_in_both_forms_of_sources() {
        let new = "Types: deb\n# http://old.example/debian\nURIs: http://deb.debian.org/debian\n";
        assert_eq!(mirrors_of(new), ["http://deb.debian.org/debian"]);
        let old = "deb [arch=amd64] http://m.example/debian/ bookworm main\n\
                   deb http://m.example/debian-security bookworm-security main\n";
        assert_eq!(mirrors_of(old), ["http://m.example/debian"]);
    }
}
