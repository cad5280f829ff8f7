// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A value that was looked for: found, not there, or not to be had; and why.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// What came of looking for one thing.
///
/// In JSON a value that was found stands as it is; else there is an object with the one key
/// `absent` or `unreadable`, whose value says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// It is there.
    Known(T),
    /// This kernel, driver or machine has no such thing; the reason.
    Absent(String),
    /// It may be there, but cannot be read: a right or a tool is missing, or what was read makes
    /// no sense; the reason.
    Unreadable(String),
}

impl<T> Reading<T> {
    /// The value, where it was found.
    pub fn known(&self) -> Option<&T> {
        match self {
            Reading::Known(value) => Some(value),
            _ => None,
        }
    }

    /// Why there is no value; `None` when there is one.
    pub fn why_not(&self) -> Option<&str> {
        match self {
            Reading::Known(_) => None,
            Reading::Absent(why) | Reading::Unreadable(why) => Some(why),
        }
    }

    /// Whether it is known that there is no such thing.
    pub fn is_absent(&self) -> bool {
        matches!(self, Reading::Absent(_))
    }

    /// Whether nobody knows.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Reading::Unreadable(_))
    }

    /// Makes something else of the value.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Reading<U> {
        self.then(|value| Reading::Known(make(value)))
    }

    /// Makes another reading of the value.
    pub fn then<U>(self, make: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Reading::Known(value) => make(value),
            Reading::Absent(why) => Reading::Absent(why),
            Reading::Unreadable(why) => Reading::Unreadable(why),
        }
    }

    /// Makes something of the value that may make no sense.
    pub fn parse<U, E: ToString>(self, make: impl FnOnce(T) -> Result<U, E>) -> Reading<U> {
        self.then(|value| match make(value) {
            Ok(made) => Reading::Known(made),
            Err(error) => Reading::Unreadable(error.to_string()),
        })
    }
}

// By hand: what serde derives for several forms of a value cannot read maps whose keys are numbers.
impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (key, why) = match self {
            Reading::Known(value) => return value.serialize(serializer),
            Reading::Absent(why) => (ABSENT, why),
            Reading::Unreadable(why) => (UNREADABLE, why),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(key, why)?;
        map.end()
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Reading<T>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let reason = |key| match value.as_object() {
            Some(object) if object.len() == 1 => object.get(key)?.as_str().map(str::to_owned),
            _ => None,
        };
        if let Some(why) = reason(ABSENT) {
            return Ok(Reading::Absent(why));
        }
        if let Some(why) = reason(UNREADABLE) {
            return Ok(Reading::Unreadable(why));
        }
        serde_json::from_value(value).map(Reading::Known).map_err(D::Error::custom)
    }
}

const ABSENT: &str = "absent";
const UNREADABLE: &str = "unreadable";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_readings_are_plain_in_json_and_parse_back() {
        let cases: [(Reading<u32>, &str); 3] = [
            (Reading::Known(7), "7"),
            (Reading::Absent("no driver".into()), r#"{"absent":"no driver"}"#),
            (Reading::Unreadable("EPERM".into()), r#"{"unreadable":"EPERM"}"#),
        ];
        for (reading, text) in cases {
            assert_eq!(serde_json::to_string(&reading).unwrap(), text);
            assert_eq!(serde_json::from_str::<Reading<u32>>(text).unwrap(), reading);
        }
        assert!(serde_json::from_str::<Reading<u32>>(r#"{"absent":"a","more":1}"#).is_err());
    }

    #[test]
    fn t0_a_value_that_makes_no_sense_is_unreadable() {
        let text = Reading::Known("x".to_owned());
        let number = text.parse(|text| text.parse::<u32>());
        assert!(number.is_unreadable(), "{number:?}");
        let absent: Reading<u32> = Reading::<String>::Absent("gone".into()).map(|_| 1);
        assert_eq!((absent.is_absent(), absent.why_not()), (true, Some("gone")));
    }
}
