// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes what a page shows, in a directory of its own.

use std::fmt;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::page::{How, Page, Part, Shown, with_keys};
use super::text::difference;
use crate::support::{Host, MOMENT, Scratch, TIMEWIRE, children_of, send_signal, wait_until};

/// What was executed, and what is wrong with it.
#[derive(Default)]
pub struct Done {
    pub pages: usize,
    pub commands: usize,
    /// Commands of whose output the page shows something.
    pub compared: usize,
    /// Blocks that were passed over, since this machine has not what they need.
    pub skipped: usize,
    pub doubts: Vec<String>,
}

impl Done {
    pub fn add(&mut self, other: Done) {
        self.pages += other.pages;
        self.commands += other.commands;
        self.compared += other.compared;
        self.skipped += other.skipped;
        self.doubts.extend(other.doubts);
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done { pages, commands, compared, skipped, .. } = self;
        write!(f, "{commands} commands of {pages} pages, {compared} with what they print")?;
        if *skipped > 0 { write!(f, ", {skipped} blocks skipped") } else { Ok(()) }
    }
}

/// Executes a page until something is not as it says; on a bare system, whose root is given, or on
/// this one.
pub fn perform(page: &Page, root: &Path, bare: Option<&Path>) -> Done {
    let mut done = Done { pages: 1, ..Done::default() };
    let mut shell = match bare {
        Some(_) => Shell::new(),
        None => Shell::new().with_scenarios(root),
    };
    if let Some(system) = bare {
        shell.bare = Some(Bare::enter(system, shell.scratch.path()));
    } else if page.needs_a_host() {
        // It says why there is none.
        let Some(host) = Host::start() else { return Done::default() };
        if page.two_hosts {
            connect(&host);
        }
        shell.host = Some(host);
    }
    let performed = shell.page(page, &mut done);
    let ended = shell.end(true, &mut done);
    for why in [performed, ended].into_iter().filter_map(Result::err) {
        done.doubts.push(format!("{}:{why}", page.name));
    }
    done
}

/// Gives a host `eth0` to another one, `there`, which is a namespace of it.
fn connect(host: &Host) {
    for line in [
        "ip netns add there",
        "ip link add eth0 address 02:00:00:00:00:01 type veth \
         peer name eth0 address 02:00:00:00:00:02 netns there",
        "ip address add 10.0.0.1/24 dev eth0",
        "ip -n there address add 10.0.0.2/24 dev eth0",
        "ip link set eth0 up",
        "ip -n there link set eth0 up",
        "ip -n there link set lo up",
    ] {
        host.tool(line);
    }
    wait_until("the carrier is noticed", || {
        host.tool("ip link show dev eth0").contains("state UP")
    });
}

/// A shell that goes on from command to command as at a prompt: directory and exit code stay.
struct Shell {
    scratch: Scratch,
    directory: PathBuf,
    code: i32,
    host: Option<Host>,
    bare: Option<Bare>,
    /// What goes on meanwhile.
    meanwhile: Vec<Meanwhile>,
    count: usize,
}

/// A command that goes on, and where it writes.
struct Meanwhile {
    shown: Shown,
    how: How,
    child: Child,
    output: PathBuf,
}

impl Shell {
    fn new() -> Shell {
        let scratch = Scratch::new();
        let directory = scratch.path().join("here");
        fs::create_dir(&directory).unwrap();
        fs::create_dir(scratch.path().join("home")).unwrap();
        let (host, bare, meanwhile) = (None, None, Vec::new());
        Shell { scratch, directory, code: 0, host, bare, meanwhile, count: 0 }
    }

    /// With the scenarios of the repository, as copies.
    fn with_scenarios(self, root: &Path) -> Shell {
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(root.join("scenarios")).arg(&self.directory);
        assert!(copy.status().unwrap().success());
        self
    }

    fn page(&mut self, page: &Page, done: &mut Done) -> Result<(), String> {
        for part in &page.parts {
            match part {
                Part::File { name, text } => fs::write(self.directory.join(name), text).unwrap(),
                Part::Keys { name, text } => {
                    let path = self.directory.join(name);
                    let file = fs::read_to_string(&path).unwrap_or_default();
                    let file = with_keys(&file, text).map_err(|why| format!(" {name}: {why}"))?;
                    fs::write(path, file).unwrap();
                }
                Part::Commands { shown, how } => self.block(shown, how, done)?,
                Part::Other { line, command } => return Err(format!("{line}: {command}")),
            }
        }
        Ok(())
    }

    fn block(&mut self, commands: &[Shown], how: &How, done: &mut Done) -> Result<(), String> {
        if let Some(needs) = &how.needs {
            let (code, said) = self.run(needs, &How::default());
            if code != 0 {
                eprintln!("SKIP: line {}, {needs}: {}", commands[0].line, said.trim());
                done.skipped += 1;
                return Ok(());
            }
        }
        if how.after_all {
            self.end(false, done)?;
        }
        for (at, shown) in commands.iter().enumerate() {
            if how.meanwhile {
                self.start(shown, how)?;
                continue;
            }
            let (code, printed) = self.run(&shown.command, how);
            self.code = code;
            let next = commands.get(at + 1);
            let is_told = |next: &Shown| next.command == "echo $?" && !next.output.is_empty();
            judge(shown, how, code, next.is_some_and(is_told), &printed, done)?;
        }
        Ok(())
    }

    /// Starts a command that goes on.
    fn start(&mut self, shown: &Shown, how: &How) -> Result<(), String> {
        let (mut shell, output) = self.shell(&shown.command, how);
        let child = shell.spawn().unwrap();
        let mut one = Meanwhile { shown: shown.clone(), how: how.clone(), child, output };
        let end = Instant::now() + Duration::from_secs(30);
        while let Some(words) = &how.until {
            let ended = one.child.try_wait().unwrap().is_some();
            let printed = self.printed(&one.output);
            if printed.contains(words) {
                break;
            }
            if ended || Instant::now() > end {
                let Shown { line, command, .. } = shown;
                let why = format!("waited in vain until it says {words}");
                return Err(format!("{line}: $ {command}\n{why}; it printed:\n{printed}"));
            }
            std::thread::sleep(MOMENT);
        }
        self.meanwhile.push(one);
        Ok(())
    }

    /// Ends what goes on, in the order in which it began, or waits until it ends by itself, and
    /// holds it against the page.
    fn end(&mut self, now: bool, done: &mut Done) -> Result<(), String> {
        let mut wrong = Ok(());
        for mut one in std::mem::take(&mut self.meanwhile) {
            if now && one.child.try_wait().unwrap().is_none() {
                // What bounds the time is the child of what entered the host, and passes it on.
                let bound = children_of(one.child.id()).first().copied();
                send_signal(bound.unwrap_or(one.child.id()), "INT");
            }
            let status = one.child.wait().unwrap();
            // A signal as a shell has it.
            let code = status.code().or(status.signal().map(|signal| 128 + signal));
            let code = code.unwrap_or(-1);
            let printed = self.printed(&one.output);
            wrong = wrong.and(judge(&one.shown, &one.how, code, false, &printed, done));
        }
        wrong
    }

    /// Runs a command: its exit code, and what it printed on both streams.
    fn run(&mut self, command: &str, how: &How) -> (i32, String) {
        let (mut shell, output) = self.shell(command, how);
        let code = shell.status().unwrap().code().unwrap_or(-1);
        if let Ok(directory) = fs::read_to_string(self.scratch.path().join("directory")) {
            self.directory = directory.trim_end().into();
        }
        (code, self.printed(&output))
    }

    /// What will run a command, and the file of all that it prints.
    fn shell(&mut self, command: &str, how: &How) -> (Command, PathBuf) {
        self.count += 1;
        let state = self.scratch.path().join("directory");
        let output = self.scratch.path().join(format!("output-{}", self.count));
        // As at a prompt, `$?` is that of the command before; `cd` stays, but after an `exit`. Slow
        // machines alone would have lines that tell how far a command is.
        let words = match how.meanwhile {
            false => format!("(exit \"$2\")\n{command}\ncode=$?; pwd >\"$1\"; exit $code"),
            true => format!("exec {command}"),
        };
        let words = format!("export TIMEWIRE_PROGRESS=0; cd \"$3\"; {words}");
        let file = File::create(&output).unwrap();
        let bounded = ["timeout", "--kill-after=5", "120", "sh", "-c", &words, "sh"];
        let mut shell = match (&self.host, &self.bare) {
            (Some(host), _) => host.command(&how.on, &bounded),
            (None, Some(bare)) => bare.command(&bounded),
            (None, None) => alone(&bounded),
        };
        shell.arg(&state).arg(self.code.to_string()).arg(&self.directory);
        if self.bare.is_none() {
            self.surround(&mut shell);
        }
        shell.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        (shell, output)
    }

    /// What a command printed so far. The directory is called as in a clone: its name differs from
    /// run to run.
    fn printed(&self, output: &Path) -> String {
        let printed = String::from_utf8_lossy(&fs::read(output).unwrap()).into_owned();
        printed.replace(self.scratch.path().to_str().unwrap(), "")
    }

    /// The environment of a command: the program under test first, and nothing of this machine's
    /// user but the laboratory's kernels.
    fn surround(&self, command: &mut Command) {
        let programs = Path::new(TIMEWIRE).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{programs}:{path}")).env("LC_ALL", "C").env("NO_COLOR", "1");
        // What is kept goes here, and not among the files of this machine; its kernels are used.
        let home = std::env::var_os("HOME").unwrap_or_default();
        let caches = std::env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty());
        let caches = caches.map_or(Path::new(&home).join(".cache"), PathBuf::from);
        let cache = std::env::var_os("TIMEWIRE_CACHE").filter(|it| !it.is_empty());
        command.env("TIMEWIRE_CACHE", cache.map_or(caches.join("timewire"), PathBuf::from));
        command.env("TIMEWIRE_STATE_DIR", self.scratch.path().join("state"));
        command.env("HOME", self.scratch.path().join("home"));
    }
}

/// Holds a command that has ended against the page.
fn judge(
    shown: &Shown,
    how: &How,
    code: i32,
    is_told: bool,
    printed: &str,
    done: &mut Done,
) -> Result<(), String> {
    done.commands += 1;
    let Shown { line, command, output } = shown;
    let wrong = |why: &str| Err(format!("{line}: $ {command}\n{why}; it printed:\n{printed}"));
    if code != 0 && !how.or.contains(&code) && !is_told {
        return wrong(&format!("its exit code is {code}"));
    }
    if output.is_empty() {
        return Ok(());
    }
    done.compared += usize::from(output.iter().any(|line| line != "..."));
    let page: Vec<&str> = output.iter().map(String::as_str).collect();
    match difference(&page, &printed.lines().collect::<Vec<_>>()) {
        None => Ok(()),
        Some(at) => {
            wrong(&format!("the page shows: {}", page.get(at).copied().unwrap_or("(no more)")))
        }
    }
}

/// The system below a directory, with a network namespace of its own.
struct Bare {
    system: PathBuf,
    home: PathBuf,
    /// Its namespaces are there as long as this is.
    holder: Child,
}

impl Bare {
    /// Enters it. `shared` is there as it is here; nothing else of this system is, but its kernel.
    fn enter(system: &Path, shared: &Path) -> Bare {
        // The root is a mount of its own, as on any system: tools for namespaces count on that.
        let enter = r#"mount --bind "$0" "$0" && mkdir -p "$0$1" && mount --bind "$1" "$0$1" &&
            mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" && echo entered &&
            exec cat"#;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-c", enter]);
        command.arg(system).arg(shared).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut entered = [0; 8];
        std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut entered).unwrap();
        Bare { system: system.to_owned(), home: shared.join("home"), holder }
    }

    /// A command there.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount", "--net", "chroot"]);
        command.arg(&self.system).args(["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
        command.arg(format!("HOME={}", self.home.display()));
        command.args(["LC_ALL=C", "NO_COLOR=1"]).args(words);
        command
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A command in a network namespace of its own, where there may be one: no page sends anything.
fn alone(words: &[&str]) -> Command {
    static ENTRY: OnceLock<&[&str]> = OnceLock::new();
    let may = |entry: &&&[&str]| {
        let mut unshare = Command::new(entry[0]);
        unshare.args(&entry[1..]).arg("true").stderr(Stdio::null());
        unshare.status().is_ok_and(|status| status.success())
    };
    let entries: [&[&str]; 2] =
        [&["unshare", "--net"], &["unshare", "--map-current-user", "--net"]];
    let entry = ENTRY.get_or_init(|| entries.iter().find(may).copied().unwrap_or(&["env"]));
    let mut command = Command::new(entry[0]);
    command.args(&entry[1..]).args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts(text: &str) -> Vec<String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        perform(&Page::of("p.md", text), &root, None).doubts
    }

    #[test]
    fn t1_a_page_that_is_right_has_no_doubts() {
        let text = "\
<!-- file: a -->
```
x: 1
```
```console
$ cat a; cat b
x: 1
...b...
$ echo $?
1
$ cd scenarios
$ ls tdm-64.yaml; echo error >&2
tdm-64.yaml
error
```
<!-- keys of: ../a -->
```
x: 2
```
```console
$ cat ../a
x: 2
$ timewire --version
timewire ...
```
";
        assert_eq!(doubts(text), [""; 0]);
    }

    #[test]
    fn t1_a_page_that_is_wrong_is_told_with_its_line() {
        let wrong = [
            ("$ echo a\nb", "p.md:2: $ echo a\nthe page shows: b; it printed:\na\n"),
            ("$ printf 'a\\nb\\n'\na", "p.md:2: $ printf 'a\\nb\\n'\nthe page shows: (no more); "),
            ("$ true\na", "p.md:2: $ true\nthe page shows: a; it printed:\n"),
            ("$ true\n$ exit 3", "p.md:3: $ exit 3\nits exit code is 3; "),
            ("$ false\n$ echo $?\n2", "p.md:3: $ echo $?\nthe page shows: 2; it printed:\n1\n"),
            ("$ false\n$ echo $?", "p.md:2: $ false\nits exit code is 1; it printed:\n"),
            ("$ timewire no", "p.md:2: $ timewire no\nits exit code is 2; it printed:\nerror"),
        ];
        for (commands, why) in wrong {
            let doubts = doubts(&format!("```console\n{commands}\n```\n"));
            assert!(doubts.len() == 1 && doubts[0].starts_with(why), "{doubts:?}");
        }
        let missing = "<!-- keys of: a -->\n```\nx: 2\n```\n";
        assert_eq!(doubts(missing), ["p.md: a: the file has no key `x: 2`"]);
    }
}
