// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dashboard of `packaging/grafana` asks for what the page has, and shows all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use serde_json::Value as Json;

use super::super::listen::tests::heard;
use super::Exposition;

const DASHBOARD: &str = include_str!("../../../../../packaging/grafana/timewire-listen.json");

/// What a page has: each sample's name with the type of its metric and its labels.
type Samples = BTreeMap<String, (String, BTreeSet<String>)>;

/// The page as a server gives it on loopback.
fn samples() -> Samples {
    let exposition = Exposition::start("127.0.0.1:0".parse().unwrap()).unwrap();
    exposition.publish(Arc::new(heard()));
    let mut client = TcpStream::connect(exposition.address()).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    exposition.end();
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    let (mut found, mut of) = (Samples::new(), (String::new(), String::new()));
    for line in page.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap();
            of = (name.to_owned(), kind.to_owned());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert!(name.starts_with(&of.0), "{line}");
            let labels =
                line.split_once('{').map_or("", |(_, rest)| rest.split_once('}').unwrap().0);
            let labels = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0));
            let sample = found.entry(name.to_owned()).or_insert((of.1.clone(), BTreeSet::new()));
            sample.1.extend(labels.map(str::to_owned));
        }
    }
    found
}

fn dashboard() -> Json {
    serde_json::from_str(DASHBOARD).unwrap()
}

fn list<'a>(of: &'a Json, pointer: &str) -> &'a [Json] {
    of.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(of: &'a Json, pointer: &str) -> &'a str {
    of.pointer(pointer).and_then(Json::as_str).unwrap_or_else(|| panic!("no {pointer} in {of}"))
}

/// All queries: of panels, and of variables.
fn queries(dashboard: &Json) -> Vec<&str> {
    let panels = list(dashboard, "/panels").iter().flat_map(|panel| list(panel, "/targets"));
    let variables = list(dashboard, "/templating/list").iter();
    let variables = variables.filter(|it| it["type"] == "query");
    let of_panels = panels.map(|target| text(target, "/expr"));
    of_panels.chain(variables.map(|it| text(it, "/query/query"))).collect()
}

/// The metrics that a query names, each with the function right around it, and what is behind it.
fn named(query: &str) -> Vec<(&str, &str, &str)> {
    let starts = query.match_indices("timewire_").map(|(at, _)| at);
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let one = |at: usize| {
        let (before, rest) = query.split_at(at);
        let end = rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len());
        let function = before.strip_suffix('(').unwrap_or_default();
        let function = function.rsplit(|c| !is_of_a_name(c)).next().unwrap_or_default();
        (&rest[..end], function, &rest[end..])
    };
    starts.map(one).collect()
}

#[test]
fn t1_the_dashboard_shows_every_metric_and_no_other() {
    let (samples, dashboard) = (samples(), dashboard());
    assert_eq!(samples.len(), 18, "three of a histogram and 15 others: {samples:?}");
    let mut shown = BTreeSet::new();
    for query in queries(&dashboard) {
        let metrics = named(query);
        assert!(!metrics.is_empty(), "{query}");
        for (metric, function, behind) in metrics {
            let Some((kind, labels)) = samples.get(metric) else { panic!("{metric}: {query}") };
            shown.insert(metric);
            // What only grows says nothing by itself; what does not only grow has no rate.
            let grows = ["rate", "increase"].contains(&function);
            let is_counted = ["count", "label_values"].contains(&function);
            assert!(is_counted || grows == (kind != "gauge"), "{metric}: {query}");
            let within = behind.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for matcher in within.map_or("", |(within, _)| within).split(", ") {
                let Some((label, value)) = matcher.split_once("=~") else { continue };
                assert!(label == "instance" || labels.contains(label), "{label}: {query}");
                assert_eq!(value, format!("\"${label}\""), "the variable of its name");
            }
            // Labels that sums keep, and the one that a variable has the values of.
            let kept = query.split("by (").skip(1).filter_map(|rest| rest.split_once(')'));
            for label in kept.flat_map(|(kept, _)| kept.split(", ")) {
                assert!(label == "instance" || labels.contains(label), "{label}: {query}");
            }
        }
    }
    let all: BTreeSet<&str> = samples.keys().map(String::as_str).collect();
    assert_eq!(shown, all);
}

#[test]
fn t1_the_dashboard_is_whole() {
    let dashboard = dashboard();
    let panels = list(&dashboard, "/panels");
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert!(text(panel, "/title").len() > 3 && text(panel, "/description").ends_with('.'));
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{cell:?} has two panels");
        }
        let mut references = BTreeSet::new();
        for target in list(panel, "/targets") {
            assert!(references.insert(text(target, "/refId")), "{panel}");
            assert_eq!(text(target, "/datasource/uid"), "${datasource}");
            let query = text(target, "/expr");
            let depth = query.chars().try_fold(0_u32, |depth, c| match c {
                '(' | '{' | '[' => Some(depth + 1),
                ')' | '}' | ']' => depth.checked_sub(1),
                _ => Some(depth),
            });
            assert_eq!(depth, Some(0), "{query}");
        }
        assert_eq!(text(panel, "/datasource/uid"), "${datasource}");
    }
    assert!(panels.len() > 10, "{}", panels.len());
    // Every variable that is used is there, but for those that Grafana has.
    let variables: BTreeSet<&str> =
        list(&dashboard, "/templating/list").iter().map(|it| text(it, "/name")).collect();
    let used = DASHBOARD.split('$').skip(1).map(|rest| {
        let rest = rest.trim_start_matches('{');
        &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap()]
    });
    let used: BTreeSet<&str> = used.filter(|name| !name.starts_with("__")).collect();
    assert_eq!(used, variables);
    for text in ["${DS_", "grafana.com", "http:", "https:"] {
        assert!(!DASHBOARD.contains(text), "{text}");
    }
}
