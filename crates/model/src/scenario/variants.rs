// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Variables of a network with streams: `${NAME}` anywhere in the file stands for a value, and each
//! combination of values, as often as it is repeated, is a network of its own.
//!
//! Not here: variables of stations with phases alone, which the orchestrator puts into steps.

use std::collections::BTreeSet;

use super::change::find;
use super::error::Problem;
use super::item::{Item, Reader};
use super::phases::{Variable, check_variables};
use super::record::record;
use super::suggest::listed;
use super::tree::{Key, Node, Value};
use super::value::{Count, Name};

/// Values of variables, and which repetition with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Each variable with its value.
    pub values: Vec<(Name, String)>,
    /// Which repetition, from 1; 0 of what is not repeated.
    pub repeat: u64,
}

/// Every combination of values, the last variable changing first; those of a list of `together`
/// change together. One without a value where there is no variable.
pub fn combinations(variables: &[Variable], together: &[Vec<Name>]) -> Vec<Vec<(Name, String)>> {
    let mut all = vec![Vec::new()];
    let mut done = BTreeSet::new();
    for variable in variables {
        if done.contains(&variable.name) {
            continue;
        }
        let group = together.iter().find(|group| group.contains(&variable.name));
        let with: Vec<&Variable> = match group {
            Some(group) => variables.iter().filter(|it| group.contains(&it.name)).collect(),
            None => vec![variable],
        };
        done.extend(with.iter().map(|it| &it.name));
        let columns: Vec<(&Name, Vec<String>)> =
            with.iter().map(|it| (&it.name, it.texts())).collect();
        let rows = columns.iter().map(|(_, texts)| texts.len()).min().unwrap_or(0);
        // More than can be: who asked tells it by the number.
        if all.len().saturating_mul(rows) > MAX_COMBINATIONS {
            return vec![Vec::new(); MAX_COMBINATIONS + 1];
        }
        all = (all.iter())
            .flat_map(|values| {
                (0..rows).map(|row| {
                    let own =
                        columns.iter().map(|(name, texts)| ((*name).clone(), texts[row].clone()));
                    values.iter().cloned().chain(own).collect()
                })
            })
            .collect();
    }
    all
}

/// Most characters of a value in the name of a case, which is one of a directory.
const MAX_IN_NAME: usize = 24;
/// Most combinations of values.
pub const MAX_COMBINATIONS: usize = 9_999;

impl Variant {
    /// What stands behind the name of a case: `-rate-10mbit-r2`.
    pub(super) fn suffix(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let of = |(name, value): &(Name, String)| {
            let value: String = value.chars().map(plain).take(MAX_IN_NAME).collect();
            format!("-{name}-{}", value.trim_matches('-'))
        };
        let values: String = self.values.iter().map(of).collect();
        if self.repeat == 0 { values } else { format!("{values}-r{}", self.repeat) }
    }

    /// What stands behind the title of a case.
    pub(super) fn title(&self) -> String {
        let of = |(name, value): &(Name, String)| format!(", {name}={value}");
        let values: String = self.values.iter().map(of).collect();
        if self.repeat == 0 { values } else { format!("{values} #{}", self.repeat) }
    }

    /// Seeds of repetitions follow each other.
    pub(super) fn seed(&self, first: Count<0, 0xffff_ffff>) -> Count<0, 0xffff_ffff> {
        let more = self.repeat.saturating_sub(1);
        Count::clamped((first.get() + more) % (1 << 32))
    }

    /// The file with the values in it.
    pub(super) fn put_into(&self, root: &Node, problems: &mut Vec<Problem>) -> Node {
        let mut root = root.clone();
        let Value::Map(entries) = &mut root.value else { return root };
        // Where there are no variables, `${` is what a shell makes of it.
        if self.values.is_empty() {
            return root;
        }
        for (key, node) in entries.iter_mut() {
            match key.text.as_str() {
                // The orchestrator puts values into steps and names of records.
                "checks" => {}
                "experiment" => {
                    let Value::Map(entries) = &mut node.value else { continue };
                    let cases = entries.iter_mut().filter(|(key, _)| key.text != "variables");
                    cases.for_each(|(key, node)| self.put(&key.text, node, problems));
                }
                text => self.put(text, node, problems),
            }
        }
        root
    }

    fn put(&self, key: &str, node: &mut Node, problems: &mut Vec<Problem>) {
        match &mut node.value {
            Value::Scalar { text, plain } if text.contains("${") => {
                let values = self.values.iter().map(|(name, value)| (name.as_str(), &**value));
                match with_values(text, values) {
                    Ok(whole) => {
                        // What is only a variable is a number where its value is one.
                        *plain |= text.starts_with("${") && text.find('}') == Some(text.len() - 1);
                        *text = whole;
                    }
                    Err((message, hint)) => problems.push(Problem {
                        key: key.to_owned(),
                        ..Problem::new(node.mark, message, &hint)
                    }),
                }
            }
            Value::List(all) => {
                for (i, node) in all.iter_mut().enumerate() {
                    self.put(&format!("{key}[{i}]"), node, problems);
                }
            }
            Value::Map(all) => {
                for (own, node) in all.iter_mut().filter(|(key, _)| key.text != "phases") {
                    self.put(&format!("{key}.{}", own.text), node, problems);
                }
            }
            Value::Scalar { .. } | Value::Absent => {}
        }
    }
}

/// A text with the values of variables; `$${` stands for `${`.
///
/// **Errors**: what is wrong, and what would be right: an unknown variable, or one without an end.
pub fn with_values<'v>(
    text: &str,
    values: impl Iterator<Item = (&'v str, &'v str)> + Clone,
) -> Result<String, (String, String)> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        if let Some(escaped) = before.strip_suffix('$') {
            whole += escaped;
            whole += "${";
            rest = after;
            continue;
        }
        whole += before;
        let hint = "write `${NAME}`, or `$${` for the characters themselves";
        let Some(end) = after.find('}') else {
            return Err(("`${` has no end".to_owned(), hint.to_owned()));
        };
        let name = &after[..end];
        let Some((_, value)) = values.clone().find(|(known, _)| *known == name) else {
            let known = listed(values.map(|(name, _)| name));
            let hint = match known.is_empty() {
                true => format!("there are no variables; {hint}"),
                false => format!("the variables are: {known}; {hint}"),
            };
            return Err((format!("there is no variable `{name}`"), hint));
        };
        whole += value;
        rest = &after[end + 1..];
    }
    Ok(whole + rest)
}

record! {
    /// The part of a file that is read before its variables have values.
    pub(super) struct VariedFile {
        /// What is compared.
        experiment: Varied,
    }
}

record! {
    /// What is varied.
    pub(super) struct Varied {
        /// What is varied.
        variables: Vec<Variable> = "[]",
        /// Variables that change together.
        together: Vec<Vec<Name>> = "[]",
        /// How often each combination is performed.
        repeats: Count<1, 1000> = "1",
    }
}

/// What a file with streams is repeated with: once as it stands, where it says nothing of that.
///
/// **Errors**: what is wrong with its variables; nothing else of the file would be worth telling.
pub(super) fn variants(root: &Node) -> Result<Vec<Variant>, Vec<Problem>> {
    let is_of_streams = find(root, &["streams"]).is_some();
    let Some(experiment) = find(root, &["experiment"]).filter(|_| is_of_streams) else {
        return Ok(vec![Variant::default()]);
    };
    let mut varied = experiment.clone();
    let Value::Map(entries) = &mut varied.value else { return Ok(vec![Variant::default()]) };
    entries.retain(|(key, _)| ["variables", "together", "repeats"].contains(&&*key.text));
    let key = Key { text: "experiment".to_owned(), mark: varied.mark };
    let file = Node { mark: root.mark, value: Value::Map(vec![(key, varied)]) };
    let mut reader = Reader::new(root.mark);
    let read = VariedFile::read(&file, &mut reader);
    if let Some(VariedFile { experiment }) = &read {
        check_variables(&experiment.variables, &experiment.together, &mut reader);
        Uses::of(root).check(&experiment.variables, &mut reader);
    }
    let Some(VariedFile { experiment }) = read.filter(|_| reader.problems.is_empty()) else {
        return Err(reader.problems);
    };
    let repeats = experiment.repeats.get();
    let all = combinations(&experiment.variables, &experiment.together).into_iter();
    let repeated = |values: Vec<(Name, String)>| {
        let of = move |repeat| Variant { values: values.clone(), repeat };
        // One that is not repeated has no number.
        if repeats == 1 { 0..=0 } else { 1..=repeats }.map(of)
    };
    Ok(all.flat_map(repeated).collect())
}

/// Where a file has values of variables.
struct Uses<'a> {
    texts: Vec<&'a str>,
    /// Programs find all of them in their environment.
    has_programs: bool,
}

impl<'a> Uses<'a> {
    fn of(root: &'a Node) -> Uses<'a> {
        let mut uses = Uses { texts: Vec::new(), has_programs: false };
        uses.look(root);
        uses
    }

    fn look(&mut self, node: &'a Node) {
        match &node.value {
            Value::Scalar { text, .. } => self.texts.extend(text.contains("${").then_some(&**text)),
            Value::List(all) => all.iter().for_each(|node| self.look(node)),
            Value::Map(all) => {
                self.has_programs |= all.iter().any(|(key, _)| key.text == "phases");
                all.iter().for_each(|(_, node)| self.look(node));
            }
            Value::Absent => {}
        }
    }

    /// Whether each variable makes a difference. One that is not written right is told elsewhere.
    fn check(&self, variables: &[Variable], reader: &mut Reader) {
        let known = variables.iter().map(|it| (it.name.as_str(), ""));
        if self.has_programs || self.texts.iter().any(|it| with_values(it, known.clone()).is_err())
        {
            return;
        }
        for (i, variable) in variables.iter().enumerate() {
            let written = format!("${{{}}}", variable.name);
            if !self.texts.iter().any(|text| text.contains(&written)) {
                let at = format!("experiment.variables[{i}]");
                let message =
                    format!("the file is the same with every value of `{}`", variable.name);
                let hint = format!("write `{written}` where its value belongs");
                reader.fail_at(&at, message, &hint);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::further::NothingFurther;
    use super::super::network::{NetTraffic, NetworkCases};
    use super::super::{AtMost, ScenarioError, ScenarioErrors};

    const GOOD: &str = r#"
timewire: 1
kind: network
name: two
seed: 7
stations: [a, b]
links: [{ between: [a, b], rate: "${rate}" }]
streams:
  - { name: control, talker: a, listeners: b, class: 5, size: 64B, period: 1ms, max_latency: 9ms }
  - { name: files, talker: a, listeners: b, size: "${size}B", kind: flood, rate: 5Mbit,
      burst: "${burst}" }
experiment:
  variables:
    - { name: rate, values: [10Mbit, 1Gbit] }
    - { name: size, values: [64, 128] }
    - { name: burst, values: [1, 2] }
  together: [[size, burst]]
  cases: [{ name: plain, change: { streams: { control: { class: 0 } } } }, { name: priority }]
limits:
  - { id: helps, metric: latency-max, stream: control, case: priority, at_most: 0.5,
      relative_to: { case: plain } }
"#;

    fn parse(text: &str) -> Result<NetworkCases, ScenarioErrors> {
        NetworkCases::parse_with(&NothingFurther, "f", text)
    }

    #[test]
    fn t0_each_case_is_there_with_each_combination_of_values() {
        let all = parse(GOOD).unwrap();
        let names: Vec<&str> = all.cases.iter().map(|it| it.case.as_str()).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[0], "plain-rate-10mbit-size-64-burst-1");
        assert_eq!(names[7], "priority-rate-1gbit-size-128-burst-2");
        let last = &all.cases[7];
        assert_eq!((&*last.of, last.file.links[0].rate.get()), ("priority", 1_000_000_000));
        assert_eq!(last.title, "priority, rate=1Gbit, size=128, burst=2");
        assert_eq!(last.file.streams[1].size.unwrap().get(), 128);
        let NetTraffic::Flood(flood) = &last.file.streams[1].traffic else { panic!() };
        assert_eq!(flood.burst.get(), 2);
        // Each is compared with the other case of the same values.
        let pairs: Vec<_> =
            all.relative.iter().map(|it| (it.case.as_str(), it.to_case.as_str())).collect();
        assert_eq!(pairs.len(), 4);
        for (of, to) in pairs {
            assert_eq!(of.strip_prefix("priority"), to.strip_prefix("plain"));
        }
        // As it is written, it has the first values.
        assert_eq!(all.base.links[0].rate.get(), 10_000_000);
    }

    #[test]
    fn t0_limits_that_look_at_two_cases_have_the_values_of_each() {
        let text = GOOD.replace("[1, 2] }", "[1, 2] }\n    - { name: ratio, values: [0.5, 5] }");
        let text = text.replace("at_most: 0.5", "at_most: \"${ratio}\"");
        let all = parse(&text).unwrap();
        assert_eq!(all.relative.len(), 8);
        for limit in &all.relative {
            let most = if limit.case.ends_with("ratio-5") { 5_000_000 } else { 500_000 };
            let AtMost::Ratio(ppm) = limit.at_most else { panic!("{limit:?}") };
            assert_eq!(ppm.get(), most, "{limit:?}");
        }
    }

    #[test]
    fn t0_repetitions_have_seeds_of_their_own() {
        let from = GOOD.find("  cases").unwrap();
        let cases = &GOOD[from..GOOD.find("limits").unwrap()];
        let text = GOOD.replace(cases, "  repeats: 2\n");
        let text = text.replace(&text[text.find("limits").unwrap()..], "");
        let all = parse(&text).unwrap();
        let of = |i: usize| (all.cases[i].case.as_str(), all.cases[i].file.seed.get());
        assert_eq!(of(0), ("network-rate-10mbit-size-64-burst-1-r1", 7));
        assert_eq!(of(1), ("network-rate-10mbit-size-64-burst-1-r2", 8));
        assert_eq!(all.cases[1].title, "network, rate=10Mbit, size=64, burst=1 #2");
        assert_eq!(all.cases.len(), 8);
    }

    #[test]
    fn t0_what_is_wrong_with_variables_is_told_with_its_place() {
        for (from, to, key, message) in [
            ("${rate}", "${speed}", "links[0].rate", "there is no variable `speed`"),
            ("${rate}", "${rate", "links[0].rate", "`${` has no end"),
            ("[10Mbit, 1Gbit]", "[10Mbit, fast]", "links[0].rate", "`fast` is no quantity"),
            ("[10Mbit, 1Gbit]", "[10Mbit, 10mbit]", "links[0].rate", "10mbit"),
            ("size: \"${size}B\"", "size: 64B", "experiment.variables", "the name `plain-rate"),
            ("${burst}", "2", "experiment.variables[2]", "the same with every value of `burst`"),
            ("values: [64, 128]", "from: 1, to: 200", "experiment.variables", "more than 256"),
            ("values: [64, 128]", "values: []", "experiment.variables[1]", "neither a list"),
        ] {
            let mut text = GOOD.replacen(from, to, 1);
            if to == "size: 64B" {
                text = text.replace("[64, 128]", "[a.b, a-b]");
                text = text.replace("name: two\n", "name: two\ndescription: '${size}'\n");
            }
            if to == "size: 64B" || to.starts_with("from") {
                text = text.replace("  together: [[size, burst]]\n", "");
            }
            let errors = parse(&text).unwrap_err();
            let is_told = |it: &ScenarioError| it.key == key && it.message.contains(message);
            assert!(errors.errors.iter().any(is_told), "{to}: {errors}");
        }
        // Without variables it is a text as any other.
        let program = "timewire: 1\nkind: network\nname: n\nstations: [a, b]\nlinks: [[a, b]]\n\
                       description: '${HOME}'\nstreams: [{name: s, talker: a, listeners: b, \
                       size: 64B, period: 1ms}]\n";
        assert_eq!(parse(program).unwrap().base.description.as_str(), "${HOME}");
    }
}
