// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A JSON Schema in which values of some keys that stand in several places are written once.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

/// The schema with `$defs` for values of these keys, under these names, where they stand in several
/// places.
pub(super) fn shared(mut schema: Json, keys: &[(&str, &str)]) -> Json {
    let mut seen: BTreeMap<String, (String, usize)> = BTreeMap::new();
    count(&schema, keys, &mut seen);
    let several = seen.into_iter().filter(|(_, (_, count))| *count > 1);
    let defs: BTreeMap<String, String> = several.map(|(text, (name, _))| (text, name)).collect();
    refer(&mut schema, &defs);
    let mut written: Map<String, Json> = schema["$defs"].as_object().cloned().unwrap_or_default();
    for (text, name) in &defs {
        let mut def: Json = serde_json::from_str(text).unwrap_or_default();
        refer(&mut def, &defs);
        written.insert(name.clone(), def);
    }
    schema["$defs"] = Json::Object(written);
    schema
}

/// What a value is without what its key says of it.
fn plain(value: &Json) -> Option<String> {
    let mut value = value.as_object()?.clone();
    value.remove("description");
    value.remove("default");
    Some(Json::Object(value).to_string())
}

fn count(value: &Json, wanted: &[(&str, &str)], seen: &mut BTreeMap<String, (String, usize)>) {
    match value {
        Json::Array(all) => all.iter().for_each(|it| count(it, wanted, seen)),
        Json::Object(keys) => {
            let of_keys = keys.get("properties").and_then(Json::as_object);
            for (key, value) in of_keys.into_iter().flatten() {
                let named = wanted.iter().find(|(wanted, _)| wanted == key);
                let Some(((_, name), text)) = named.zip(plain(value)) else { continue };
                let (_, times) = seen.entry(text).or_insert_with(|| ((*name).to_owned(), 0));
                *times += 1;
            }
            keys.values().for_each(|it| count(it, wanted, seen));
        }
        _ => {}
    }
}

fn refer(value: &mut Json, defs: &BTreeMap<String, String>) {
    match value {
        Json::Array(all) => all.iter_mut().for_each(|it| refer(it, defs)),
        Json::Object(keys) => {
            let of_keys = keys.get_mut("properties").and_then(Json::as_object_mut);
            for (_, value) in of_keys.into_iter().flatten() {
                let Some(name) = plain(value).and_then(|text| defs.get(&text)) else { continue };
                let mut short = json!({"$ref": format!("#/$defs/{name}")});
                for key in ["description", "default"] {
                    if let Some(said) = value.get(key) {
                        short[key] = said.clone();
                    }
                }
                *value = short;
            }
            keys.values_mut().for_each(|it| refer(it, defs));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_what_stands_twice_is_written_once() {
        let inner = json!({"type": "string", "pattern": "x", "description": "one"});
        let group = json!({"type": "object", "properties": {"a": inner, "b": inner}});
        let mut other = group.clone();
        other["description"] = json!("other");
        let all = json!({"properties": {"g": group, "h": other, "x": {"type": "string"}}});
        let shared = shared(all, &[("a", "text"), ("g", "group"), ("h", "group")]);
        assert_eq!(
            shared["properties"]["h"],
            json!({"$ref": "#/$defs/group", "description": "other"})
        );
        assert_eq!(shared["properties"]["x"]["type"], "string");
        assert_eq!(shared["$defs"]["group"]["properties"]["b"]["$ref"], "#/$defs/text");
        assert_eq!(shared["$defs"]["text"]["pattern"], "x");
        assert_eq!(shared["$defs"].as_object().unwrap().len(), 2);
    }
}
