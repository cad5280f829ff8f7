// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared library as these tests' build has it, a C and a C++ compiler, and programs made of
//! both.
//!
//! Not here: calling the library from Rust (`misuse.rs`).

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"];

pub fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A directory with the library under the names that the linkers look for; made anew by each test.
pub fn library(test: &str) -> PathBuf {
    let built = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    for (name, file) in [
        ("libtimewire.so", "libtimewire.so"),
        (concat!("libtimewire.so.", env!("TIMEWIRE_ABI_VERSION")), "libtimewire.so"),
        ("libtimewire.a", "libtimewire.a"),
    ] {
        let from = built.join(file);
        assert!(from.exists(), "{} is built with the tests", from.display());
        symlink(from, directory.join(name)).unwrap();
    }
    directory
}

/// Whether there is such a tool; says so if not.
pub fn has(tool: &str) -> bool {
    let mut command = Command::new(tool);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let works = command.status().is_ok_and(|status| status.success());
    if !works {
        eprintln!("SKIP: {tool} is not installed");
    }
    works
}

/// Runs a compiler; it has nothing to say.
pub fn compile(compiler: &str, arguments: &[&str]) {
    let output = Command::new(compiler).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{compiler} {arguments:?}:\n{said}");
}

/// Builds an example against the shared library; returns the program.
pub fn build(source: &str, library: &Path) -> PathBuf {
    let program = library.join(Path::new(source).file_stem().unwrap());
    let (compiler, standard) =
        if source.ends_with(".cpp") { ("c++", "-std=c++17") } else { ("cc", "-std=c11") };
    let (include, source) = (here("include"), here(source));
    let mut arguments = vec![standard, "-O2"];
    arguments.extend(WARNINGS);
    arguments.extend(["-I", include.to_str().unwrap(), source.to_str().unwrap()]);
    arguments.extend(["-o", program.to_str().unwrap(), "-L", library.to_str().unwrap()]);
    arguments.extend(["-ltimewire", "-pthread"]);
    compile(compiler, &arguments);
    program
}

/// A command that finds the library.
pub fn command(program: &Path, library: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", library).stdin(Stdio::null());
    command
}

/// Runs a program to its end; returns what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (printed, said) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{printed}{said}", output.status);
    printed.into_owned()
}

/// A program that runs, and is ended with its test.
pub struct Running {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    /// The rest of the line that starts so; what it said instead if it ended before.
    pub fn line(&mut self, start: &str) -> Result<String, String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                return Err(said);
            }
            if let Some(rest) = line.strip_prefix(start) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// Asks it to end, as a user would.
    pub fn interrupt(&self) {
        run(Command::new("kill").args(["-INT", &self.child.id().to_string()]));
    }

    /// What it prints until its end, which must be a good one.
    pub fn rest(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It fails when the program has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number behind a word, as in `sent 100 full 0`.
pub fn number(text: &str, word: &str) -> i64 {
    let mut words = text.split_ascii_whitespace().skip_while(|one| *one != word);
    let number = words.nth(1).and_then(|it| it.parse().ok());
    number.unwrap_or_else(|| panic!("no number of `{word}` in: {text}"))
}
