// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How two settings differ, setting by setting.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::model::Settings;

/// One setting that is not the same in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where it stands: `interfaces.eth0.features.rx-checksumming.on`. Places of lists are numbers
    /// from 0.
    pub path: String,
    /// What it was; `None` when it was not there.
    pub before: Option<Value>,
    /// What it is; `None` when it is no longer there.
    pub after: Option<Value>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| match value {
            Some(value) => value.to_string(),
            None => "nothing".to_owned(),
        };
        write!(f, "{}: {} -> {}", self.path, show(&self.before), show(&self.after))
    }
}

impl Settings {
    /// What is not the same in a later one; nothing when both are equal.
    ///
    /// **Shape**: in the order of the paths as a snapshot prints them.
    pub fn differences(&self, later: &Settings) -> Vec<Difference> {
        let form = |settings: &Settings| {
            serde_json::to_value(settings).expect("invariant: settings have a form in JSON")
        };
        let mut found = Vec::new();
        compare(String::new(), Some(&form(self)), Some(&form(later)), &mut found);
        found
    }
}

fn compare(
    path: String,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (before, after) {
        _ if before == after => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for (key, value) in old {
                compare(below(key), Some(value), new.get(key), found);
            }
            for (key, value) in new.iter().filter(|(key, _)| !old.contains_key(*key)) {
                compare(below(key), None, Some(value), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            for at in 0..old.len().max(new.len()) {
                compare(below(&at.to_string()), old.get(at), new.get(at), found);
            }
        }
        _ => found.push(Difference { path, before: before.cloned(), after: after.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn t0_differences_name_the_smallest_part() {
        let before = json!({"a": {"b": 1, "c": [1, 2]}, "d": true, "e": {"f": 1}});
        let after = json!({"a": {"b": 2, "c": [1]}, "d": true, "g": 3});
        let mut found = Vec::new();
        compare(String::new(), Some(&before), Some(&after), &mut found);
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected =
            ["a.b: 1 -> 2", "a.c.1: 2 -> nothing", "e: {\"f\":1} -> nothing", "g: nothing -> 3"];
        assert_eq!(shown, expected);
        let mut none = Vec::new();
        compare(String::new(), Some(&before), Some(&before), &mut none);
        assert!(none.is_empty());
    }
}
