// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instance data of YANG in XML (RFC 7950), as the value that JSON (RFC 7951) would have: a name
//! has its module before it where that is another than its parent's, elements of one name are a
//! list, and every leaf is text. Attributes, and text beside elements, become members that no
//! reader asks for: `@name` and `#text`.
//!
//! The module of a namespace is its last part, as in all namespaces of IETF and IEEE.

use serde_json::{Map, Value};

/// What is wrong, and in which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct XmlError {
    pub line: usize,
    pub what: String,
}

/// The deepest that elements may lie in each other.
const DEEPEST: usize = 128;

/// The members of a document.
pub(super) fn parse(text: &str) -> Result<Value, XmlError> {
    let mut reader = Reader { text, at: 0 };
    let spaces = vec![(String::new(), String::new())];
    let (map, rest) = reader.content(None, &spaces, "", 0)?;
    if !rest.trim().is_empty() {
        return Err(reader.error("there is text outside of elements"));
    }
    if map.is_empty() {
        return Err(reader.error("there is no element"));
    }
    Ok(Value::Object(map))
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// By prefix its namespace; the last of a prefix counts.
type Spaces = Vec<(String, String)>;

fn namespace(spaces: &Spaces, prefix: &str) -> Option<String> {
    spaces.iter().rev().find(|(own, _)| own == prefix).map(|(_, space)| space.clone())
}

fn module(space: &str) -> &str {
    space.rsplit([':', '/']).next().unwrap_or_default()
}

/// Puts a value below a name; a second one makes a list of both.
fn add(map: &mut Map<String, Value>, name: String, value: Value) {
    match map.get_mut(&name) {
        None => {
            map.insert(name, value);
        }
        Some(Value::Array(list)) => list.push(value),
        Some(before) => *before = Value::Array(vec![before.take(), value]),
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || "_-.:".contains(c)
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, what: impl Into<String>) -> XmlError {
        let line = self.text[..self.at].matches('\n').count() + 1;
        XmlError { line, what: what.into() }
    }

    fn skip(&mut self, what: &str) -> bool {
        let is_there = self.rest().starts_with(what);
        self.at += if is_there { what.len() } else { 0 };
        is_there
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Up to a mark and past it.
    fn until(&mut self, mark: &str) -> Result<&'a str, XmlError> {
        let found = self.rest().find(mark);
        let end = found.ok_or_else(|| self.error(format!("`{mark}` is missing")))?;
        let text = &self.rest()[..end];
        self.at += end + mark.len();
        Ok(text)
    }

    fn name(&mut self) -> Result<&'a str, XmlError> {
        let rest = self.rest();
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error("a name is missing"));
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// Members and text up to the end of the element of this name, or of the document.
    fn content(
        &mut self,
        of: Option<&str>,
        spaces: &Spaces,
        parent: &str,
        depth: usize,
    ) -> Result<(Map<String, Value>, String), XmlError> {
        let (mut map, mut text) = (Map::new(), String::new());
        loop {
            let rest = self.rest();
            if rest.is_empty() {
                return match of {
                    None => Ok((map, text)),
                    Some(name) => Err(self.error(format!("`{name}` is not closed"))),
                };
            }
            let plain = rest.find('<').unwrap_or(rest.len());
            if plain > 0 {
                self.at += plain;
                text += &self.plain(&rest[..plain])?;
            } else if self.skip("<!--") {
                self.until("-->")?;
            } else if self.skip("<![CDATA[") {
                text += self.until("]]>")?;
            } else if self.skip("<?") {
                self.until("?>")?;
            } else if rest.starts_with("<!") {
                return Err(self.error("a document type is not read; take it out"));
            } else if self.skip("</") {
                let name = self.name()?;
                self.space();
                if of != Some(name) || !self.skip(">") {
                    return Err(self.error(format!("`{name}` is closed where it is not open")));
                }
                return Ok((map, text));
            } else {
                self.at += 1;
                let (name, value) = self.element(spaces, parent, depth)?;
                add(&mut map, name, value);
            }
        }
    }

    /// From its name on: the member and its value.
    fn element(
        &mut self,
        spaces: &Spaces,
        parent: &str,
        depth: usize,
    ) -> Result<(String, Value), XmlError> {
        if depth > DEEPEST {
            return Err(self.error(format!("elements lie more than {DEEPEST} deep")));
        }
        let full = self.name()?;
        let (mut spaces, mut attributes) = (spaces.clone(), Map::new());
        let is_empty = loop {
            self.space();
            if self.skip("/>") {
                break true;
            }
            if self.skip(">") {
                break false;
            }
            let name = self.name()?;
            self.space();
            if !self.skip("=") {
                return Err(self.error(format!("`=` is missing after `{name}`")));
            }
            self.space();
            let quote = if self.skip("'") { "'" } else { "\"" };
            if quote == "\"" && !self.skip("\"") {
                return Err(self.error(format!("the value of `{name}` has no quotation marks")));
            }
            let raw = self.until(quote)?;
            let value = self.plain(raw)?;
            match name.split_once(':') {
                _ if name == "xmlns" => spaces.push((String::new(), value)),
                Some(("xmlns", prefix)) => spaces.push((prefix.to_owned(), value)),
                _ => add(&mut attributes, format!("@{name}"), Value::String(value)),
            }
        };
        let (prefix, local) = full.split_once(':').unwrap_or(("", full));
        let space = namespace(&spaces, prefix);
        let space = space.ok_or_else(|| self.error(format!("`{prefix}` is no namespace here")))?;
        let (mut map, text) = match is_empty {
            true => (Map::new(), String::new()),
            false => self.content(Some(full), &spaces, &space, depth + 1)?,
        };
        let is_other = space != parent && !space.is_empty();
        let name = if is_other { format!("{}:{local}", module(&space)) } else { local.to_owned() };
        let is_leaf = map.is_empty();
        map.extend(attributes);
        let text = text.trim();
        if is_leaf && map.is_empty() {
            return Ok((name, Value::String(text.to_owned())));
        }
        if !text.is_empty() {
            map.insert("#text".to_owned(), Value::String(text.to_owned()));
        }
        Ok((name, Value::Object(map)))
    }

    /// Text with its references resolved.
    fn plain(&self, raw: &str) -> Result<String, XmlError> {
        let mut text = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(start) = rest.find('&') {
            text += &rest[..start];
            let end = rest[start..].find(';').map(|end| start + end);
            let end = end.ok_or_else(|| self.error("`;` is missing after `&`"))?;
            let name = &rest[start + 1..end];
            let number = match name.strip_prefix('#') {
                Some(hex) if hex.starts_with('x') => u32::from_str_radix(&hex[1..], 16).ok(),
                Some(decimal) => decimal.parse().ok(),
                None => None,
            };
            let one = match name {
                "lt" => Some('<'),
                "gt" => Some('>'),
                "amp" => Some('&'),
                "apos" => Some('\''),
                "quot" => Some('"'),
                _ => number.and_then(char::from_u32),
            };
            text.push(one.ok_or_else(|| self.error(format!("`&{name};` is not known")))?);
            rest = &rest[end + 1..];
        }
        Ok(text + rest)
    }
}
