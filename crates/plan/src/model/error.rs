// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is wrong with a description.

use timewire_base::Span;

/// Why a network or a stream is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ModelError {
    #[error("link {link}: there is no node {node}; there are {nodes}")]
    NoSuchNode { link: String, node: u32, nodes: usize },
    #[error("link {link}: goes from a node to itself")]
    Loop { link: String },
    #[error("{owner}: {field} is {value_ns} ns; it must be {bound}")]
    Time { owner: String, field: &'static str, value_ns: i64, bound: &'static str },
    #[error("{owner}: {field} is {value}; it must be {bound}")]
    Number { owner: String, field: &'static str, value: u64, bound: &'static str },
    #[error("{kind} {name}: the name is taken")]
    NameTaken { kind: &'static str, name: String },
    #[error("stream {stream}: {field}: there is no node {node}; there are {nodes}")]
    StreamNode { stream: String, field: &'static str, node: u32, nodes: usize },
    #[error("stream {stream}: {field}: {name} is a bridge; only end stations talk and listen")]
    NotAStation { stream: String, field: &'static str, name: String },
    #[error("stream {stream}: a stream has one listener or more, none of them twice or its talker")]
    Listeners { stream: String },
    #[error("stream {stream}: its path: {what}")]
    Path { stream: String, what: String },
    #[error("the common multiple of all intervals is longer than {most:?}")]
    Cycle { most: Span },
    #[error("{count} {what} are too many; {most} is the most")]
    TooMany { what: &'static str, count: usize, most: usize },
}
