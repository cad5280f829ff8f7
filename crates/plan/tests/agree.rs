// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All that is written of one plan says the same, of every device; what differs is found.

use std::fmt::Write;

use timewire_model::scenario::network::{DeviceModel, NetworkFile};
use timewire_plan::exchange::read_gates;
use timewire_plan::file::{self, FileProblem, RenderError, Rendered, check_rendered};
use timewire_plan::model::Plan;
use timewire_plan::synth::{Options, plan};
use timewire_tsn::file::ParseFile;
use timewire_tsn::qdisc::{Qdisc, QdiscCommand};

/// Two planned classes, one stream beside them, and one that leaves by another port.
fn star(station: &str, bridge: &str) -> String {
    let mut text = format!(
        "timewire: 1\nkind: network\nname: star\nduration: 10ms\n\
         stations: [{{ name: a, device: {station} }}, {{ name: b }}, {{ name: c }}]\n\
         bridges: [{{ name: br, forward: 2us, device: {bridge} }}]\nlinks:\n"
    );
    for name in ["a", "b", "c"] {
        let _ = writeln!(text, "- {{ between: [{name}, br], rate: 1Gbit }}");
    }
    text += "streams:\n";
    for (name, to, class, offset) in [("s", "b", 7, 0), ("t", "c", 6, 100), ("u", "b", 6, 200)] {
        let _ = writeln!(
            text,
            "- {{ name: {name}, talker: a, listeners: {to}, class: {class}, size: 200B, \
             scheduled: true, kind: cyclic, period: 1ms, offset: {offset}us }}"
        );
    }
    text += "- { name: rest, talker: c, listeners: b, class: 1, size: 1400B, \
             kind: cyclic, period: 5ms }\n";
    text
}

fn rendered(text: &str) -> (NetworkFile, FileProblem, Plan, Vec<Rendered>) {
    let network = NetworkFile::parse("test", text).unwrap_or_else(|errors| panic!("{errors}"));
    let given = file::problem(&network).unwrap();
    let found = plan(given.problem.clone(), Options::default(), 1_000_000);
    assert_eq!(found.refused, []);
    let files = file::render(&network, &given, &found).unwrap_or_else(|error| panic!("{error}"));
    (network, given, found, files)
}

fn text<'a>(files: &'a [Rendered], name: &str) -> &'a str {
    &files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("{name}")).text
}

/// The masks of the `taprio` of an interface, and how many classes it has.
fn masks(lines: &str, interface: &str) -> (Vec<u32>, usize) {
    for line in lines.lines() {
        let command: QdiscCommand = line.parse().unwrap();
        if let (Some(Qdisc::Taprio(taprio)), true) =
            (command.qdisc(), command.device().as_str() == interface)
        {
            let entries = taprio.options().entries.iter();
            let masks = entries.map(|entry| entry.gate_states.bits()).collect();
            let classes = taprio.options().classes.as_ref().unwrap().count();
            return (masks, classes.into());
        }
    }
    panic!("{interface} has no gates in\n{lines}");
}

#[test]
fn t0_masks_for_switches_are_of_their_queues() {
    let switches = ["ls1028a", "sja1105", "sja1110", "lan966x"];
    for model in DeviceModel::ALL.into_iter().filter(|model| switches.contains(&model.word())) {
        let (.., files) = rendered(&star("{}", model.word()));
        let gates = text(&files, "br.yang.json");
        let gates = read_gates("br", gates.as_bytes()).unwrap().interfaces;
        assert_eq!(gates.len(), 2, "{model}");
        for port in gates {
            let (masks, classes) = masks(text(&files, "br.tc"), &port.interface);
            assert_eq!(classes, 8, "{model}");
            let yang: Vec<u32> = port.entries.iter().map(|(open, _)| (*open).into()).collect();
            // A list may begin elsewhere in the cycle.
            let mut turned = yang.clone();
            turned.dedup();
            assert!(masks.iter().all(|mask| yang.contains(mask)), "{model}: {masks:?} {yang:?}");
            let highest = masks.iter().fold(0, |all, mask| all | mask);
            assert_eq!(highest, 0xff, "{model}");
        }
    }
}

#[test]
fn t0_the_files_of_every_device_agree() {
    for model in DeviceModel::ALL {
        let word = model.word();
        // The check is in `render`.
        if model != DeviceModel::I210 {
            rendered(&star("{}", word));
        }
        rendered(&star(word, "{}"));
        rendered(&star("{ launch_time: 100us }", "{ offload: true, queues: 6 }"));
    }
}

#[test]
fn t0_a_file_that_differs_is_found_with_port_and_entry() {
    let (network, given, plan, files) = rendered(&star("{}", "sja1105"));
    assert_eq!(check_rendered(&network, &given, &plan, &files, &mut || true), Ok(()));
    let cases: &[(&str, &str, &str, &str)] = &[
        ("br.yang.json", "\"gate-states-value\": 128", "\"gate-states-value\": 64", "entry"),
        ("br.yang.json", "\"priority7\": 7", "\"priority7\": 6", "opens the priorities"),
        ("br.yang.json", "\"numerator\": 1", "\"numerator\": 2", "a cycle of"),
        ("br.yang.json", "\"gate-enabled\"", "\"gate-enabling\"", "is not read"),
        ("br.tc", "sched-entry S 80 ", "sched-entry S 40 ", "entry"),
        ("br.tc", "map 0", "map 1", "priority 0 is in queue"),
        ("br.tc", "tc qdisc replace dev eth1", "tc qdisc replace dev eth3", "has nothing at"),
        ("br.host.yaml", "open: [7]", "open: [6]", "entry"),
        ("a.host.yaml", "interval: ", "interval: 1", ""),
        ("a.tc", "base-time 0", "base-time 7", ""),
    ];
    for (name, from, to, said) in cases {
        let mut changed = files.clone();
        let file = changed.iter_mut().find(|file| file.name == *name).unwrap();
        let new = file.text.replacen(from, to, 1);
        if new == file.text {
            assert!(said.is_empty(), "{from} is not in {name}:\n{}", file.text);
            continue;
        }
        file.text = new;
        let found = check_rendered(&network, &given, &plan, &changed, &mut || true);
        let error = found.expect_err(&format!("{name}: {from}"));
        let RenderError::Disagree { one, other, port, what } = &error else {
            panic!("{error}");
        };
        assert!(what.contains(said), "{name} {from}: {error}");
        assert!(one.contains('.') || other.contains('.'), "{error}");
        assert!(port.contains("br") || port.contains('a'), "{error}");
    }
}
