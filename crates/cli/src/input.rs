// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files that a user names: their text, and what is said when one is of another kind than the verb
//! takes.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use timewire_base::{Failure, StationName};
use timewire_datapath::DatapathError;
use timewire_model::scenario::host::HostSettings;
use timewire_model::scenario::network::NetworkCases;
use timewire_model::scenario::{FileKind, IncludeError, Scenario, ScenarioErrors, with_included};
use timewire_tsn::file::{self, ParseFile as _};

/// What is wrong with a file, each mistake as a block that begins with `error: `; printed as it is.
#[derive(Debug)]
pub struct Refused {
    errors: ScenarioErrors,
    /// What was not done for it: `nothing was run`.
    nothing: &'static str,
    /// It is right, but kernels do not do what it asks for.
    is_unsupported: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.errors, self.nothing)
    }
}

impl Error for Refused {}

impl Failure for Refused {
    fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }
}

/// A network file from which the host settings of one station are taken.
#[derive(Debug, Args)]
pub struct SettingsFile {
    /// Network file with host settings of a station (YAML or JSON)
    pub file: PathBuf,
    /// The station, where several have host settings
    #[arg(long, value_name = "NAME")]
    pub station: Option<StationName>,
}

impl SettingsFile {
    /// **Errors**: as [`host_settings`].
    pub fn read(&self) -> anyhow::Result<HostSettings> {
        host_settings(&self.file, self.station.as_ref(), "nothing was changed")
    }
}

/// The host settings of a station of a network file, or of the only one that has some.
///
/// **Errors**: as [`read`].
pub fn host_settings(
    path: &Path,
    station: Option<&StationName>,
    nothing: &'static str,
) -> anyhow::Result<HostSettings> {
    let parse = |name: &str, text: &str| file::host_settings(name, text, station);
    Ok(read(path, FileKind::HostSettings, nothing, parse)?.0)
}

/// The text of a file, with the texts of those that it includes.
///
/// **Errors**: one of them cannot be read, or is no text; what it is instead is named with its
/// verb. A file includes itself.
pub fn text(path: &Path) -> anyhow::Result<String> {
    with_included(path, &mut own_text).map_err(|error| match error {
        IncludeError::Read(error) => error,
        IncludeError::Wrong(errors) => {
            Refused { errors, nothing: "nothing was done", is_unsupported: false }.into()
        }
    })
}

/// The bytes of a file. What is no file, such as a pipe, can be read once, and need not end: it is
/// kept, and cut beyond what any text may be.
fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    static KEPT: Mutex<BTreeMap<PathBuf, Vec<u8>>> = Mutex::new(BTreeMap::new());
    if fs::metadata(path)?.is_file() {
        return fs::read(path);
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(bytes) = kept.get(path) {
        return Ok(bytes.clone());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST_OF_PIPE).read_to_end(&mut bytes)?;
    kept.insert(path.to_owned(), bytes.clone());
    Ok(bytes)
}

/// More is no text that is read. **Units**: bytes.
const LONGEST_OF_PIPE: u64 = (1 << 20) + 1;

/// The text of a file alone.
fn own_text(path: &Path) -> anyhow::Result<String> {
    let name = path.display();
    if path.is_dir() {
        bail!("{name} is a directory{}, not a file", what_directory(path));
    }
    let bytes = bytes_of(path).with_context(|| format!("cannot read {name}"))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            match Binary::of(error.as_bytes()) {
                Some(binary) => bail!("{name} is {}", binary.said(path, "a text file")),
                None => bail!("{name} is no text: its byte {at} is not UTF-8"),
            }
        }
    }
}

/// Reads a file of a kind, and gives its text, too. `nothing` is what is not done when it is none.
///
/// **Errors**: as [`text`]; everything that is wrong with it, or, when it is of another kind, only
/// that.
pub fn read<T>(
    path: &Path,
    wanted: FileKind,
    nothing: &'static str,
    parse: impl Fn(&str, &str) -> Result<T, ScenarioErrors>,
) -> anyhow::Result<(T, String)> {
    let text = text(path)?;
    match parse(&path.to_string_lossy(), &text) {
        Ok(file) => Ok((file, text)),
        Err(errors) => Err(refused(path, &text, (&wanted, nothing), errors)),
    }
}

/// Whether a scenario has a station.
///
/// **Errors**: it has not; those that it has are named.
pub fn station(scenario: &Scenario, station: &StationName) -> anyhow::Result<()> {
    if scenario.station(station).is_some() {
        return Ok(());
    }
    let known = scenario.stations.iter().map(|station| station.name.to_string()).collect();
    Err(DatapathError::NoStation { name: station.clone(), known }.into())
}

/// The names of a scenario's stations.
pub fn stations(scenario: &Scenario) -> String {
    let names: Vec<_> = scenario.stations.iter().map(|station| station.name.as_str()).collect();
    names.join(", ")
}

/// What is said about a file that was refused.
pub fn refused(
    path: &Path,
    text: &str,
    (wanted, nothing): (&FileKind, &'static str),
    errors: ScenarioErrors,
) -> anyhow::Error {
    let is_other = |kind: &FileKind| match wanted {
        // Those of a whole network are taken, too.
        FileKind::HostSettings => !matches!(
            kind,
            FileKind::HostSettings
                | FileKind::Network
                | FileKind::Programs
                | FileKind::Segment
                | FileKind::Steps
        ),
        FileKind::Network => !matches!(kind, FileKind::Network | FileKind::Segment),
        wanted => kind != wanted,
    };
    match FileKind::of(text).filter(is_other) {
        // Verbs that want one segment take no other network; of what is none, that is not told.
        Some(kind) if *wanted == FileKind::Segment && kind != FileKind::Network => {
            other_kind(path, &kind, &FileKind::Network.to_string())
        }
        Some(kind) => other_kind(path, &kind, &wanted.to_string()),
        None => {
            // The simulator of networks would take it.
            let is_simulated = |it: NetworkCases| it.key_of_programs().is_none();
            let is_unsupported = *wanted == FileKind::Segment
                && Scenario::parse("", text).is_err()
                && NetworkCases::parse("", text).is_ok_and(is_simulated);
            Refused { errors, nothing, is_unsupported }.into()
        }
    }
}

/// Reads a network that is planned or simulated as it is: no stations that run programs.
///
/// **Errors**: as [`read`]; stations run programs.
pub fn read_network(
    path: &Path,
    nothing: &'static str,
    parse: impl Fn(&str, &str) -> Result<NetworkCases, ScenarioErrors>,
) -> anyhow::Result<(NetworkCases, String)> {
    let (network, text) = read(path, FileKind::Network, nothing, parse)?;
    if let Some(key) = network.key_of_programs() {
        let name = path.display();
        bail!(
            "{name}: with `{key}`, its stations run programs: `timewire run {name}` takes it, and \
             with `--on sim` simulates it"
        );
    }
    Ok((network, text))
}

/// That a file is of another kind than the verb takes.
pub fn other_kind(path: &Path, kind: &FileKind, wanted: &str) -> anyhow::Error {
    let name = path.display().to_string();
    // All three are network files.
    let wanted = match (kind, wanted) {
        (FileKind::HostSettings | FileKind::Programs | FileKind::Steps, "a network file") => {
            "one with streams"
        }
        (FileKind::Network | FileKind::HostSettings, NETWORK_OF_PROGRAMS) => "one with programs",
        (FileKind::HostSettings | FileKind::Programs, NETWORK_OF_PHASES) => "one with phases",
        (_, wanted) => wanted,
    };
    match kind.taken_by(&name) {
        Some(verb) => anyhow!("{name} is {kind}, not {wanted}: `{verb}` takes it"),
        None => anyhow!("{name} is {kind}, not {wanted}"),
    }
}

/// What a file is that was to be something binary: a sentence, when that is known.
pub fn mistaken(path: &Path, wanted: &str) -> Option<anyhow::Error> {
    let name = path.display();
    if path.is_dir() {
        return Some(anyhow!("{name} is a directory{}, not {wanted}", what_directory(path)));
    }
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LOOKED_AT).read_to_end(&mut bytes).ok()?;
    if let Some(binary) = Binary::of(&bytes) {
        return Some(anyhow!("{name} is {}", binary.said(path, wanted)));
    }
    let kind = FileKind::of(std::str::from_utf8(&bytes).ok()?)?;
    Some(other_kind(path, &kind, wanted))
}

/// What messages call a file of [`FileKind::Programs`].
const NETWORK_OF_PROGRAMS: &str = "a network file with programs alone";

/// What messages call a file of [`FileKind::Steps`].
const NETWORK_OF_PHASES: &str = "a network file with phases alone";

/// So much of a file tells what it is. **Units**: bytes.
const LOOKED_AT: u64 = 1 << 20;

/// The verb that takes a directory, when it is one of a run.
fn what_directory(path: &Path) -> String {
    let is_run = ["run.json", "talk.json", "listen.json", "experiment.json", "segment.jsonl"]
        .iter()
        .any(|name| path.join(name).is_file());
    if path.join("array.json").is_file() {
        return format!(
            " of an array (`timewire run {} --merge` merges its shares)",
            path.display()
        );
    }
    match is_run {
        true => format!(" of a run (`timewire report {}` shows it)", path.display()),
        false => String::new(),
    }
}

/// Files that are no text, by how they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binary {
    Capture,
    Records,
    Packets,
    Wave,
}

impl Binary {
    fn of(bytes: &[u8]) -> Option<Binary> {
        let begins: [(&[u8], Binary); 8] = [
            (b"\x89TWC\r\n\x1a\n", Binary::Capture),
            (b"\x89TWR\r\n\x1a\n", Binary::Records),
            (b"\xa1\xb2\xc3\xd4", Binary::Packets),
            (b"\xd4\xc3\xb2\xa1", Binary::Packets),
            (b"\xa1\xb2\x3c\x4d", Binary::Packets),
            (b"\x4d\x3c\xb2\xa1", Binary::Packets),
            (b"\x0a\x0d\x0d\x0a", Binary::Packets),
            (b"RIFF", Binary::Wave),
        ];
        begins.into_iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, binary)| binary)
    }

    fn said(self, path: &Path, wanted: &str) -> String {
        let name = path.display();
        match self {
            Binary::Capture => {
                format!("a capture, not {wanted}: `timewire trace show {name}` takes it")
            }
            Binary::Records => format!(
                "a record file of a run, not {wanted}: `timewire report DIRECTORY` takes its \
                 directory"
            ),
            Binary::Packets => format!(
                "a capture of packets (pcap), not {wanted}: `replay` of a network file takes it"
            ),
            Binary::Wave => {
                format!("a WAVE file, not {wanted}: `timewire avtp talk {name}` takes it")
            }
        }
    }
}
