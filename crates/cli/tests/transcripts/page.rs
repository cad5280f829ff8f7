// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a page has for the reader to type in: fenced blocks, commands in them, and files.

use super::listed::Listed;

/// A page and what is to be done with it, in order.
pub struct Page {
    pub name: String,
    pub parts: Vec<Part>,
    /// Whether it is about two hosts, which it then has.
    pub two_hosts: bool,
    /// Where it is executed.
    pub system: System,
    doubts: Vec<String>,
}

/// Where a page is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// On this one.
    This,
    /// On one with nothing but the packages.
    Bare,
    /// On this one, and on one with nothing but the packages.
    Both,
}

impl System {
    pub fn is_this(self) -> bool {
        self != System::Bare
    }

    pub fn is_bare(self) -> bool {
        self != System::This
    }
}

/// What one block is for.
#[derive(Debug, PartialEq)]
pub enum Part {
    /// It is the content of a file.
    File { name: String, text: String },
    /// It takes the place of the same keys of a file.
    Keys { name: String, text: String },
    /// Its commands are executed.
    Commands { shown: Vec<Shown>, how: How },
    /// It has commands that are not executed: its line and the first of them.
    Other { line: usize, command: String },
}

/// How commands of a block are executed, as notes above it say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct How {
    /// The host: that of the page (`""`), or the other one.
    pub on: String,
    /// They go on while what comes after them is executed, and are ended with the page.
    pub meanwhile: bool,
    /// What comes after them waits until each has printed this.
    pub until: Option<String>,
    /// Before them all that goes on meanwhile ends by itself.
    pub after_all: bool,
    /// They are passed over where this command fails.
    pub needs: Option<String>,
    /// They may end with these codes, too: that the machine is not good enough.
    pub or: Vec<i32>,
}

/// A command, and what the page shows below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The line of the page, from 1.
    pub line: usize,
    pub command: String,
    pub output: Vec<String>,
}

/// A fenced block.
struct Block<'a> {
    /// The line above the fence.
    above: &'a str,
    /// What the block is in: the first word behind the fence.
    language: &'a str,
    /// The line of its first line, from 1.
    line: usize,
    lines: Vec<&'a str>,
}

impl Page {
    pub fn of(name: &str, text: &str) -> Page {
        let (parts, doubts) = (Vec::new(), Vec::new());
        let name_is = name.to_owned();
        let mut page =
            Page { name: name_is, parts, two_hosts: false, system: System::This, doubts };
        let mut how = How::default();
        for found in found(text) {
            let part = match &found {
                Found::Block(block) => block.part(std::mem::take(&mut how)),
                Found::Note { text, .. } => page.note(text, &mut how).map(|()| None),
            };
            match part {
                Ok(part) => page.parts.extend(part),
                Err(why) => page.doubts.push(format!("{name}:{}: {why}", found.line())),
            }
        }
        page
    }

    /// Takes in a note, of the page or of the next block; any other comment is the author's.
    fn note(&mut self, text: &str, how: &mut How) -> Result<(), String> {
        match text.split_once(": ").unwrap_or((text, "")) {
            ("two hosts", "") => self.two_hosts = true,
            ("bare system", "") => self.system = System::Bare,
            ("bare system, too", "") => self.system = System::Both,
            ("meanwhile", "") => how.meanwhile = true,
            ("after all", "") => how.after_all = true,
            ("until", words) if !words.is_empty() => how.until = Some(words.to_owned()),
            ("on", host) => how.on = host.to_owned(),
            ("needs", command) if !command.is_empty() => how.needs = Some(command.to_owned()),
            ("or", codes) => {
                let code = |code: &str| code.parse().map_err(|_| format!("{code} is no exit code"));
                how.or = codes.split(", ").map(code).collect::<Result<_, _>>()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Leaves out what is listed as not executed.
    pub fn keep_executed(&mut self, listed: &mut Listed) {
        let Page { name, parts, doubts, .. } = self;
        parts.retain(|part| match part {
            Part::Commands { shown, .. } => !listed.has(name, &shown[0].command),
            Part::Other { line, command } => {
                if !listed.has(name, command) {
                    let what = "neither executed nor listed in not_executed.txt";
                    doubts.push(format!("{name}:{line}: {what}: {command}"));
                }
                false
            }
            Part::File { .. } | Part::Keys { .. } => true,
        });
    }

    /// What is wrong with its blocks.
    pub fn doubts(&self) -> impl Iterator<Item = &str> {
        self.doubts.iter().map(String::as_str)
    }

    /// What is executed on this system: of a page for a bare one that which begins with the page's
    /// own files, and so needs none of the packages'.
    pub fn here(mut self) -> Page {
        if !self.system.is_this() {
            let is_file = |part: &Part| matches!(part, Part::File { .. });
            let own = self.parts.iter().position(is_file).unwrap_or(self.parts.len());
            self.parts.drain(..own);
        }
        self
    }

    /// Whether some command starts the laboratory's kernel.
    pub fn needs_the_laboratory(&self) -> bool {
        self.parts.iter().any(Part::needs_the_laboratory)
    }

    /// Whether it changes a host, as root, or makes stations in the local laboratory, for which it
    /// gets one of its own.
    pub fn needs_a_host(&self) -> bool {
        let words = ["ip netns add", "ip link add", "timewire lab clean"];
        let elsewhere = ["--on", "--dry-run", "--task", "--merge"];
        let changes = |shown: &Shown| {
            let command = &shown.command;
            let runs = command.starts_with("timewire run ");
            words.iter().any(|word| command.starts_with(word))
                || runs && !elsewhere.iter().any(|word| command.contains(word))
        };
        let needs = |part: &Part| part.commands().iter().any(changes);
        self.two_hosts || self.parts.iter().any(needs)
    }

    /// The page up to the first block that needs the laboratory's kernel; `None` when no command is
    /// before it.
    pub fn until_the_laboratory(mut self) -> Option<Page> {
        let end = self.parts.iter().position(Part::needs_the_laboratory);
        self.parts.truncate(end.unwrap_or(self.parts.len()));
        let has_commands = self.parts.iter().any(|part| !part.commands().is_empty());
        has_commands.then_some(self)
    }
}

impl Part {
    fn needs_the_laboratory(&self) -> bool {
        let words = ["--on lab:uml", "lab exec", "lab shell"];
        let needs = |shown: &Shown| words.iter().any(|word| shown.command.contains(word));
        self.commands().iter().any(needs)
    }

    /// The commands that are executed.
    fn commands(&self) -> &[Shown] {
        match self {
            Part::Commands { shown, .. } => shown,
            _ => &[],
        }
    }
}

impl Block<'_> {
    /// What it is for; `None` when there is nothing to do.
    fn part(&self, how: How) -> Result<Option<Part>, String> {
        let text = self.lines.iter().map(|line| format!("{line}\n")).collect();
        if let Some(name) = self.note("file: ") {
            return Ok(Some(Part::File { name, text }));
        }
        if let Some(name) = self.note("keys of: ") {
            return Ok(Some(Part::Keys { name, text }));
        }
        let is_of_root = self.lines.first().is_some_and(|line| line.starts_with("# "));
        if self.language == "console" && !is_of_root {
            return self.commands().map(|shown| Some(Part::Commands { shown, how }));
        }
        let mut numbered = (self.line..).zip(&self.lines);
        let other = numbered.find_map(|(line, text)| {
            let command = self.command(text)?.to_owned();
            Some(Part::Other { line, command })
        });
        Ok(other)
    }

    /// What a comment right above the block says of it, which readers do not see.
    fn note(&self, what: &str) -> Option<String> {
        note(self.above)?.strip_prefix(what).map(str::to_owned)
    }

    /// The commands with what is shown below them.
    fn commands(&self) -> Result<Vec<Shown>, String> {
        let mut commands: Vec<Shown> = Vec::new();
        for (line, text) in (self.line..).zip(&self.lines) {
            if let Some(command) = text.strip_prefix("$ ") {
                commands.push(Shown { line, command: command.to_owned(), output: Vec::new() });
                continue;
            }
            let last = commands.last_mut().ok_or("the block does not begin with `$ `")?;
            if last.output.is_empty() && last.command.ends_with('\\') {
                last.command = format!("{}\n{text}", last.command);
            } else {
                last.output.push((*text).to_owned());
            }
        }
        if commands.is_empty() { Err("the block is empty".to_owned()) } else { Ok(commands) }
    }

    /// The command that a line is in a block that is not executed.
    fn command<'a>(&self, line: &'a str) -> Option<&'a str> {
        let line = line.trim_start();
        if self.language == "sh" && !line.is_empty() && !line.starts_with('#') {
            return Some(line);
        }
        if !["", "text", "console"].contains(&self.language) {
            return None;
        }
        if let Some(command) = line.strip_prefix("$ ") {
            return Some(command);
        }
        let of_root = line.strip_prefix("# ");
        if self.language == "console" && of_root.is_some() {
            return of_root;
        }
        let line = of_root.unwrap_or(line);
        let word = line.split(' ').next().unwrap_or_default();
        (PROGRAMS.split(' ').any(|it| it == word) && line != word).then_some(line)
    }
}

/// What a line without the prompt `$ ` begins with when it is a command, with words behind it.
const PROGRAMS: &str =
    "timewire make cargo apt tc ip ethtool sh cc python3 sbatch kubectl systemctl cp cd echo";

/// What a line is a note of.
fn note(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")
}

/// What a page has for the test, in order.
enum Found<'a> {
    Block(Block<'a>),
    /// A comment that is a line of its own.
    Note {
        line: usize,
        text: &'a str,
    },
}

impl Found<'_> {
    fn line(&self) -> usize {
        match self {
            Found::Block(block) => block.line,
            Found::Note { line, .. } => *line,
        }
    }
}

/// The fenced blocks of a text, and the notes. What stands before the fence stands before every
/// line of the block and is left out.
fn found(text: &str) -> Vec<Found<'_>> {
    let mut found = Vec::new();
    let (mut above, mut open) = ("", None);
    for (line, number) in text.lines().zip(1..) {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, open.take()) {
            (Some(info), None) => {
                let indent = line.len() - line.trim_start().len();
                let language = info.split([' ', ',']).next().unwrap_or_default();
                let block = Block { above, language, line: number + 1, lines: Vec::new() };
                open = Some((indent, block));
            }
            (Some(_), Some((_, block))) => found.push(Found::Block(block)),
            (None, Some((indent, mut block))) => {
                let blank = line.len() - line.trim_start().len();
                block.lines.push(&line[indent.min(blank)..]);
                open = Some((indent, block));
            }
            (None, None) => {
                found.extend(note(line).map(|text| Found::Note { line: number, text }));
            }
        }
        above = line;
    }
    found.extend(open.map(|(_, block)| Found::Block(block)));
    found
}

/// A file in which these keys, at the left margin, are as in the block.
///
/// # Errors
///
/// The file has no such key, or the block none at all.
pub fn with_keys(file: &str, block: &str) -> Result<String, String> {
    let mut lines: Vec<&str> = file.lines().collect();
    let new: Vec<&str> = block.lines().collect();
    let keys: Vec<usize> = (0..new.len()).filter(|at| key(new[*at]).is_some()).collect();
    if keys.first() != Some(&0) {
        return Err("the block does not begin with a key".to_owned());
    }
    for (at, next) in keys.iter().zip(keys[1..].iter().chain([&new.len()])) {
        let value: Vec<&str> = new[*at..*next].to_vec();
        let value = &value[..content(&value)];
        let start = lines.iter().position(|line| key(line) == key(value[0]));
        let start = start.ok_or_else(|| format!("the file has no key `{}`", value[0]))?;
        let rest = lines[start + 1..].iter().position(|line| key(line).is_some());
        let end = rest.map_or(lines.len(), |rest| start + 1 + rest);
        let end = start + content(&lines[start..end]);
        lines.splice(start..end, value.iter().copied());
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The key that begins at the left margin of a line.
fn key(line: &str) -> Option<&str> {
    let begins = line.starts_with(|c: char| c.is_ascii_lowercase());
    line.split_once(':').filter(|_| begins).map(|(name, _)| name)
}

/// How many lines there are without empty ones and comments at the end, which are of what follows.
fn content(lines: &[&str]) -> usize {
    let is_content = |line: &&str| !line.is_empty() && !line.starts_with('#');
    lines.iter().rposition(is_content).map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Title

<!-- file: a.yaml -->
```yaml
name: a
```
Text

   ```console
   $ one \\
   --more
   out
     in
   $ two
   ```

```
plain text
# timewire x y
```
<!-- keys of: a.yaml -->
```yaml
name: b
```
```sh
# why
tc here
```
```yaml
make: it
```
";

    #[test]
    fn t0_blocks_are_commands_files_or_nothing() {
        let page = Page::of("p.md", TEXT);
        let shown = |line, command: &str, output: &[&str]| Shown {
            line,
            command: command.to_owned(),
            output: output.iter().map(|line| (*line).to_owned()).collect(),
        };
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let ((name, text), (keys, value)) =
            (file("a.yaml", "name: a\n"), file("a.yaml", "name: b\n"));
        let commands = vec![shown(10, "one \\\n--more", &["out", "  in"]), shown(14, "two", &[])];
        let parts = [
            Part::File { name, text },
            Part::Commands { shown: commands, how: How::default() },
            Part::Other { line: 19, command: "timewire x y".to_owned() },
            Part::Keys { name: keys, text: value },
            Part::Other { line: 27, command: "tc here".to_owned() },
        ];
        assert_eq!(page.parts, parts);
        assert_eq!(page.doubts().count(), 0);
    }

    #[test]
    fn t0_a_block_that_is_neither_executed_nor_listed_is_found() {
        let mut page = Page::of("p.md", TEXT);
        page.keep_executed(&mut Listed::of("p.md | tc | far").unwrap());
        let why = "p.md:19: neither executed nor listed in not_executed.txt: timewire x y";
        assert_eq!(page.doubts().collect::<Vec<_>>(), [why]);
        let mut page = Page::of("p.md", TEXT);
        page.keep_executed(&mut Listed::of("p.md | * | far").unwrap());
        assert!(page.doubts().next().is_none() && page.until_the_laboratory().is_none());
        for wrong in ["```console\nout\n```\n", "```console\n```\n"] {
            assert_eq!(Page::of("p.md", wrong).doubts().count(), 1, "{wrong}");
        }
    }

    #[test]
    fn t0_a_page_is_cut_before_the_laboratory() {
        let text = "```console\n$ true\n```\n```console\n$ timewire run a --on lab:uml\n```\n";
        let page = Page::of("p.md", text);
        assert!(page.needs_the_laboratory());
        let page = page.until_the_laboratory().unwrap();
        assert!(page.parts.len() == 1 && !page.needs_the_laboratory());
    }

    #[test]
    fn t0_notes_say_how_a_block_is_executed() {
        let text = "<!-- two hosts -->\n<!-- on: there -->\n<!-- meanwhile -->\n\
                    <!-- until: listening -->\n<!-- or: 1, 4 -->\n<!-- after all -->\n\
                    <!-- needs: true -->\n\
                    ```console\n$ one\n```\n<!-- of the author -->\n```console\n$ two\n```\n";
        let page = Page::of("p.md", text);
        assert!(page.two_hosts && page.needs_a_host() && page.doubts().count() == 0);
        let noted = How {
            on: "there".to_owned(),
            meanwhile: true,
            until: Some("listening".to_owned()),
            after_all: true,
            needs: Some("true".to_owned()),
            or: vec![1, 4],
        };
        let how = |part: &Part| match part {
            Part::Commands { how, .. } => how.clone(),
            other => panic!("{other:?}"),
        };
        let all: Vec<How> = page.parts.iter().map(how).collect();
        assert_eq!(all, [noted, How::default()]);
        let wrong = Page::of("p.md", "<!-- or: one -->\n");
        assert_eq!(wrong.doubts().collect::<Vec<_>>(), ["p.md:1: one is no exit code"]);
    }

    #[test]
    fn t0_keys_of_a_file_take_new_values() {
        let file = "# of a\na: 1\n\n# of b\nb:\n  - x\n  # in\n  - y\n\n# of c\nc: 3\n";
        let new = with_keys(file, "c: 4\n\nb:\n  - z\n").unwrap();
        assert_eq!(new, "# of a\na: 1\n\n# of b\nb:\n  - z\n\n# of c\nc: 4\n");
        assert!(with_keys(file, "d: 4\n").is_err() && with_keys(file, "  - x\n").is_err());
    }
}
