// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Header, library and Python module say the same: the header is C11 and C++17, it declares what
//! the library exports and nothing else, and the structures of all three have the same layout.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::library::{WARNINGS, compile, has, here, library, run};

fn header() -> String {
    fs::read_to_string(here("include/timewire.h")).unwrap()
}

/// The names that start with `tw_` and are followed by this.
fn names_before(text: &str, after: char) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("tw_") {
        let name: String = text[at..].chars().take_while(|c| is_word(*c)).collect();
        let starts = !text[..at].ends_with(is_word);
        if starts && text[at + name.len()..].starts_with(after) {
            names.insert(name);
        }
    }
    names
}

fn without_comments(text: &str) -> String {
    let mut rest = text;
    let mut code = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").unwrap().1;
    }
    code + rest
}

#[test]
fn t1_the_header_is_c11_and_cpp17_by_itself() {
    for (compiler, standard, suffix) in [
        ("cc", "-std=c11", "c"),
        // C23 by its older name.
        ("cc", "-std=c2x", "c"),
        ("c++", "-std=c++17", "cpp"),
        ("c++", "-std=c++20", "cpp"),
    ] {
        if !has(compiler) {
            return;
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header");
        fs::create_dir_all(&directory).unwrap();
        let source = directory.join(format!("alone.{suffix}"));
        // Twice: it guards itself.
        fs::write(&source, "#include \"timewire.h\"\n#include \"timewire.h\"\n").unwrap();
        let include = here("include");
        let mut arguments = vec![standard, "-fsyntax-only", "-I", include.to_str().unwrap()];
        arguments.extend(WARNINGS);
        arguments.push(source.to_str().unwrap());
        compile(compiler, &arguments);
    }
}

#[test]
fn t1_the_header_declares_what_the_library_exports() {
    if !has("nm") {
        return;
    }
    let library = library("symbols");
    let mut nm = Command::new("nm");
    let listed = run(nm.args(["-D", "--defined-only"]).arg(library.join("libtimewire.so")));
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().last())
        .map(str::to_owned)
        .collect();
    let declared = names_before(&without_comments(&header()), '(');
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(declared, exported);
}

#[test]
fn t1_every_declaration_has_words_of_its_own() {
    let text = header();
    let lines: Vec<&str> = text.lines().collect();
    for name in names_before(&without_comments(&text), '(') {
        let declaration = format!("{name}(");
        let at = lines.iter().position(|line| {
            line.contains(&declaration) && !line.starts_with([' ', '\t', '/', '*'])
        });
        let before = lines[at.unwrap_or_else(|| panic!("{name} is declared in one line")) - 1];
        assert!(before.ends_with("*/"), "{name} has no comment right before it");
    }
}

macro_rules! layout {
    ($text:ident, $($name:literal $type:ty { $($field:ident = $c:literal),* })*) => {$(
        writeln!($text, "{} {}", $name, size_of::<$type>()).unwrap();
        $(writeln!($text, "{}.{} {}", $name, $c, offset_of!($type, $field)).unwrap();)*
    )*};
}

/// `NAME SIZE`, then `NAME.FIELD OFFSET` of each field, of each structure.
fn layout() -> String {
    let mut text = String::new();
    layout! { text,
        "tw_window" timewire::Window { offset_ns = "offset_ns", length_ns = "length_ns" }
        "tw_address" timewire::Address {
            family = "family", port = "port", scope = "scope", bytes = "bytes"
        }
        "tw_probe" timewire::Probe {
            size = "size", seq = "seq", time_ns = "time_ns", stream = "stream",
            is_launch = "is_launch", skipped = "skipped", has_skipped = "has_skipped"
        }
        "tw_transmitter_config" timewire::TransmitterConfig {
            size = "size", transport = "transport", interface = "interface", from = "from",
            to = "to", queue = "queue", xdp_mode = "xdp_mode", flags = "flags",
            priority = "priority", traffic_class = "traffic_class", launch = "launch",
            points = "points", buffer_bytes = "buffer_bytes", longest = "longest",
            busy_poll_us = "busy_poll_us", busy_poll_budget = "busy_poll_budget",
            reserved = "reserved"
        }
        "tw_report" timewire::Report {
            size = "size", kind = "kind", id = "id", point = "point",
            is_nic_clock = "is_nic_clock", error = "error", time_ns = "time_ns"
        }
        "tw_stream_config" timewire::StreamConfig {
            size = "size", stream = "stream", port = "port", flags = "flags",
            start_ns = "start_ns", cycle_ns = "cycle_ns", offset_ns = "offset_ns",
            spacing_ns = "spacing_ns", deadline_ns = "deadline_ns",
            launch_lead_ns = "launch_lead_ns", cycles = "cycles", frames = "frames",
            payload = "payload", to = "to", from = "from", destination = "destination",
            source = "source", ethertype = "ethertype", vid = "vid", pcp = "pcp",
            traffic_class = "traffic_class", reserved = "reserved"
        }
        "tw_talker_config" timewire::TalkerConfig {
            size = "size", reserved = "reserved", ports = "ports", streams = "streams",
            port_count = "port_count", stream_count = "stream_count", spin_ns = "spin_ns"
        }
        "tw_fill" timewire::Fill {
            size = "size", stream = "stream", seq = "seq", length = "length",
            due_ns = "due_ns", launch_ns = "launch_ns", bytes = "bytes"
        }
        "tw_stream_counters" timewire::StreamCounters {
            size = "size", reserved = "reserved", planned = "planned", sent = "sent",
            woke_late = "woke_late", overran = "overran", not_filled = "not_filled",
            not_taken = "not_taken", refused = "refused", past_deadline = "past_deadline",
            launch_invalid = "launch_invalid", launch_missed = "launch_missed",
            timestamps = "timestamps", timestamps_missing = "timestamps_missing",
            latest_ns = "latest_ns"
        }
        "tw_filter" timewire::Filter {
            parts = "parts", ethertype = "ethertype", vid = "vid", udp_port = "udp_port",
            pcp = "pcp", reserved = "reserved", destination = "destination", source = "source"
        }
        "tw_receiver_config" timewire::ReceiverConfig {
            size = "size", transport = "transport", interface = "interface", bind = "bind",
            group = "group", queue = "queue", xdp_mode = "xdp_mode", flags = "flags",
            timestamps = "timestamps", wait = "wait", busy_poll_us = "busy_poll_us",
            busy_poll_budget = "busy_poll_budget", buffer_bytes = "buffer_bytes",
            longest = "longest", reserved = "reserved", filter = "filter"
        }
        "tw_arrival" timewire::Arrival {
            size = "size", has = "has", bytes = "bytes", captured = "captured",
            length = "length", hardware_ns = "hardware_ns", driver_ns = "driver_ns",
            kernel_ns = "kernel_ns", user_ns = "user_ns", from = "from", tag = "tag",
            reserved = "reserved"
        }
    }
    text
}

/// What the header declares: every structure with fields, and these fields.
fn declared_fields() -> BTreeSet<String> {
    let code = without_comments(&header());
    let mut found = BTreeSet::new();
    for part in code.split("typedef struct ").skip(1) {
        let Some((name, rest)) = part.split_once(" {") else { continue };
        if name.contains(';') {
            continue;
        }
        let fields = rest.split_once('}').unwrap().0;
        for field in fields.split(';').filter(|field| !field.trim().is_empty()) {
            let field = field.trim().rsplit([' ', '*']).next().unwrap();
            let field = field.split('[').next().unwrap();
            found.insert(format!("{name}.{field}"));
        }
    }
    found
}

#[test]
fn t1_every_field_of_the_header_is_compared() {
    let compared: BTreeSet<String> = layout()
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.contains('.'))
        .map(str::to_owned)
        .collect();
    assert_eq!(compared, declared_fields());
}

#[test]
fn t1_structures_of_c_have_the_layout_of_the_library() {
    if !has("cc") {
        return;
    }
    let library = library("layout");
    let mut source = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include \"timewire.h\"\nint main(void)\n{\n",
    );
    for line in layout().lines() {
        let name = line.split(' ').next().unwrap();
        let value = match name.split_once('.') {
            Some((structure, field)) => format!("offsetof({structure}, {field})"),
            None => format!("sizeof({name})"),
        };
        writeln!(source, "\tprintf(\"{name} %zu\\n\", {value});").unwrap();
    }
    source += "\treturn 0;\n}\n";
    let (file, program) = (library.join("layout.c"), library.join("layout"));
    fs::write(&file, source).unwrap();
    let include = here("include");
    let paths = [&include, &file, &program].map(|path| path.to_str().unwrap());
    compile("cc", &["-std=c11", "-I", paths[0], paths[1], "-o", paths[2]]);
    assert_eq!(run(&mut Command::new(program)), layout());
}

#[test]
fn t1_structures_and_constants_of_python_are_those_of_the_header() {
    if !has("python3") {
        return;
    }
    let library = library("python_layout");
    let program = "\
import ctypes, timewire
for name, structure in timewire.STRUCTURES.items():
    print(name, ctypes.sizeof(structure))
    for field in structure._fields_:
        print('%s.%s %d' % (name, field[0], getattr(structure, field[0]).offset))
for name in dir(timewire):
    if name.isupper() and not name.startswith('_') and name != 'STRUCTURES':
        print('=', name, getattr(timewire, name))
";
    let printed = run(Command::new("python3")
        .args(["-B", "-c", program])
        .env("PYTHONPATH", here("python"))
        .env("TIMEWIRE_LIBRARY", library.join("libtimewire.so")));
    let (constants, structures): (Vec<&str>, Vec<&str>) =
        printed.lines().partition(|line| line.starts_with("= "));
    assert_eq!(structures.join("\n"), layout().trim_end());

    let code = without_comments(&header());
    for constant in constants {
        let (name, value) = constant[2..].split_once(' ').unwrap();
        let name = match name {
            "UDP" | "FRAMES" | "RING" | "XDP" => format!("TW_TRANSPORT_{name}"),
            "SPIN_USUAL_NS" => "TW_SPIN_USUAL".to_owned(),
            _ => format!("TW_{name}"),
        };
        let stands = [
            format!("{name} = {value},"),
            format!("{name} = {value}\n"),
            format!("{name} {value}\n"),
            format!("{name} INT64_C({value})\n"),
        ];
        let squeezed = code.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n";
        let stands = stands.iter().any(|text| squeezed.contains(text));
        assert!(stands, "{name} is not {value} in the header");
    }
}
