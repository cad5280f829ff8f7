// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `timewire completions` and `timewire man`: what shells and readers of manuals know of this
//! command, from the definitions that parse it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man as Page;

use crate::output;

const NAME: &str = "timewire";
const MANUAL: &str = "Timewire";

/// For which shell.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Which pages.
#[derive(Debug, Args)]
pub struct Man {
    /// The verb, such as `trace record`; none for the command itself
    verb: Vec<String>,
    /// Write the pages of the command and of all verbs into this directory instead, which is made
    #[arg(long, value_name = "DIR", conflicts_with = "verb")]
    into: Option<PathBuf>,
}

/// Prints the completions of a shell for this command.
pub fn completions(args: &Completions, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut text);
    output::print(&String::from_utf8(text)?)
}

/// Prints or writes manual pages of this command.
pub fn man(args: &Man, mut command: Command) -> anyhow::Result<ExitCode> {
    command.build();
    if let Some(directory) = &args.into {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        write_all(&command, NAME, directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut found = &command;
    let mut words = NAME.to_owned();
    for verb in &args.verb {
        let next = found.find_subcommand(verb).filter(|next| !next.is_hide_set());
        found = next.with_context(|| {
            let verbs: Vec<_> = visible(found).map(Command::get_name).collect();
            match verbs.is_empty() {
                true => format!("`{words}` has no verbs, so none is called `{verb}`"),
                false => format!("`{words}` has no verb `{verb}`: {}", verbs.join(", ")),
            }
        })?;
        words = format!("{words} {}", found.get_name());
    }
    output::print(&page(found, &words.replace(' ', "-"))?)
}

/// The verbs that people use.
fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn write_all(command: &Command, name: &str, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command, name)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    visible(command)
        .try_for_each(|verb| write_all(verb, &format!("{name}-{}", verb.get_name()), directory))
}

fn page(command: &Command, name: &str) -> anyhow::Result<String> {
    let mut text = Vec::new();
    // The same bytes whenever they are made: no date.
    let page = Page::new(command.clone().display_name(name.to_owned())).date("");
    page.source(concat!("timewire ", env!("CARGO_PKG_VERSION")))
        .manual(MANUAL)
        .render(&mut text)?;
    Ok(String::from_utf8(text)?)
}
