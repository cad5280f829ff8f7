// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starting cargo and the tools beside it.

use std::path::Path;
use std::process::{Command, Stdio};

/// The cargo that runs this program, in the repository.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// The same, with its progress told (`scripts/cargo.sh`).
#[allow(dead_code, reason = "peers/ has this file, too, and compiles nothing that takes long")]
pub fn watched(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("scripts/cargo.sh");
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    command
}

/// Whether a program of this name can be started.
pub fn exists(program: &str) -> bool {
    let mut quiet = Command::new(program);
    quiet.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs it to its end with the output of this program.
///
/// **Errors**: it cannot be started, or fails.
pub fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", line_of(command))),
        Err(error) => Err(format!("{}: {error}", line_of(command))),
    }
}

/// Runs it to its end and returns what it wrote to standard output.
///
/// **Errors**: it cannot be started, or fails (with what it wrote to standard error).
pub fn output_of(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", line_of(command)))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}\n{said}", line_of(command), output.status))
    }
}

/// The command as one would type it.
pub fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
