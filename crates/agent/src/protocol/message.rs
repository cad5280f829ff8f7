// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What controller and agent say to each other. The controller asks and the agent answers; every
//! message may be lost, come twice or late, and saying something again changes nothing.
//!
//! A message is JSON of at most [`MAX_MESSAGE`] bytes with a version; one with another version, or
//! with something in it that this version does not know, is refused.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use timewire_base::{Instant, Span, StationName, Tai};

use crate::protocol::name::{ExperimentId, RecordName};
use crate::protocol::outcome::{CommandOutcome, Restored, Why};
use crate::protocol::task::Task;

/// The version of the messages; both sides must have the same.
pub const VERSION: u32 = 4;
/// Longest message.
///
/// **Units**: bytes.
pub const MAX_MESSAGE: usize = 256 * 1024;
/// Longest piece of a record in a message.
///
/// **Units**: bytes, before they become base64.
pub const MAX_PIECE: usize = 128 * 1024;

/// What the controller says to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToAgent {
    /// [`VERSION`].
    pub version: u32,
    /// Which experiment it is about; it renews the lease.
    pub experiment: ExperimentId,
    /// What.
    pub ask: Ask,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// Could you take part? Nothing follows from it.
    Preflight,
    /// Take part in the experiment, as this station.
    Begin {
        /// As which.
        station: StationName,
        /// How long the agent waits for a message before it restores its host.
        lease: Span,
    },
    /// What does your clock read?
    Clock {
        /// Returned with the answer.
        nonce: u64,
    },
    /// Carry out a command, unless it was begun already; then say how it stands.
    Command {
        /// Higher than that of every earlier command of the experiment on this station.
        number: u32,
        /// What.
        what: What,
    },
    /// Send a piece of a record.
    Fetch {
        /// Which.
        record: RecordName,
        /// **Units**: bytes.
        offset: u64,
    },
    /// The controller has this record; the agent need not keep it.
    Received {
        /// Which.
        record: RecordName,
    },
    /// The controller has all; the experiment is over.
    Forget,
}

/// A command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// Something of the plan.
    Task {
        /// What.
        task: Task,
        /// Not before this instant; a command that comes after it is too late.
        at: Option<Instant<Tai>>,
        /// End it after so long.
        timeout: Span,
    },
    /// Stop all programs of the experiment.
    Halt,
    /// Close the records, and say which there are.
    Keep,
    /// Stop all programs and restore the host.
    Restore,
}

/// What an agent says to the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromAgent {
    /// [`VERSION`].
    pub version: u32,
    /// Which experiment it is about.
    pub experiment: ExperimentId,
    /// How this station stands in it.
    pub standing: Standing,
    /// What.
    pub answer: Answer,
}

/// How a station stands in an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Standing {
    /// It knows of none of this name.
    Unknown,
    /// It takes part.
    Held,
    /// It is restoring its host.
    Restoring {
        /// Why.
        why: Why,
    },
    /// Its host is back, but for what is left.
    Restored {
        /// Why.
        why: Why,
        /// What of it is not.
        restored: Restored,
    },
    /// It is over.
    Forgotten,
}

/// What can be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// To `preflight`.
    Preflight {
        /// What the agent lacks to change its host.
        lacks: Vec<Lack>,
        /// The other experiment that it takes part in.
        busy: Option<ExperimentId>,
    },
    /// To `begin` and `forget`: see the standing.
    Standing,
    /// The agent takes part in another experiment.
    Busy {
        /// In which.
        with: ExperimentId,
    },
    /// What is asked cannot be.
    Refused {
        /// Why not.
        why: String,
    },
    /// To `clock`.
    Clock {
        /// That of the question.
        nonce: u64,
        /// What the clock read.
        clock: Instant<Tai>,
    },
    /// The command was begun.
    Running {
        /// Which.
        number: u32,
    },
    /// The command has ended.
    Ended {
        /// Which.
        number: u32,
        /// How.
        outcome: CommandOutcome,
        /// When its task really began, by the clock of the station; where it came too late, when
        /// it came. None of what is no task, and when it is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        began: Option<Instant<Tai>>,
    },
    /// A piece of a record.
    Piece {
        /// Which.
        record: RecordName,
        /// **Units**: bytes.
        offset: u64,
        /// The bytes; at most [`MAX_PIECE`].
        #[serde(with = "crate::protocol::base64")]
        bytes: Vec<u8>,
    },
    /// The record need not be kept any more.
    Dropped {
        /// Which.
        record: RecordName,
    },
}

/// A right that an agent lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Lack {
    /// A capability, by its name.
    Capability(String),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lack::Capability(name) = self;
        f.write_str(name)
    }
}

/// Bytes that are no message.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Longer than a message may be.
    #[error("a message of {bytes} bytes is longer than {MAX_MESSAGE}")]
    Long {
        /// How long it is.
        bytes: usize,
    },
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {found} and this one version {VERSION}; update the older"
    )]
    Version {
        /// That of the other side.
        found: u32,
    },
    /// Not a message.
    #[error("not a message of version {VERSION}: {why}")]
    Malformed {
        /// What is wrong.
        why: String,
    },
}

/// Only what all versions have in common.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl ToAgent {
    /// A message about an experiment.
    pub fn new(experiment: &ExperimentId, ask: Ask) -> ToAgent {
        ToAgent { version: VERSION, experiment: experiment.clone(), ask }
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// From bytes.
    ///
    /// **Errors**: too long, of another version, or no message.
    pub fn decode(bytes: &[u8]) -> Result<ToAgent, MessageError> {
        decode(bytes)
    }
}

impl FromAgent {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// From bytes.
    ///
    /// **Errors**: too long, of another version, or no message.
    pub fn decode(bytes: &[u8]) -> Result<FromAgent, MessageError> {
        decode(bytes)
    }
}

fn encode(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("invariant: messages are plain values")
}

fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, MessageError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(MessageError::Long { bytes: bytes.len() });
    }
    let malformed = |why: serde_json::Error| MessageError::Malformed { why: why.to_string() };
    let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
    if version != VERSION {
        return Err(MessageError::Version { found: version });
    }
    serde_json::from_slice(bytes).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ExperimentId {
        ExperimentId::new("e-1").unwrap()
    }

    #[test]
    fn t0_messages_survive_and_strangers_are_refused() {
        let message = ToAgent::new(&id(), Ask::Command { number: 7, what: What::Halt });
        let text = String::from_utf8(message.encode()).unwrap();
        let expected =
            r#"{"version":4,"experiment":"e-1","ask":{"command":{"number":7,"what":"halt"}}}"#;
        assert_eq!(text, expected);
        assert_eq!(ToAgent::decode(text.as_bytes()).unwrap(), message);
        for bad in [
            text.replace("\"number\":7", "\"number\":7,\"x\":1"),
            text.replace("}}}", "}},\"x\":1}"),
            text.replace("halt", "fly"),
            text.replace("e-1", "../e"),
            text.replace(":7", ":-7"),
            String::new(),
            "[]".to_owned(),
        ] {
            let error = ToAgent::decode(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, MessageError::Malformed { .. }), "{bad}: {error}");
        }
        let future = r#"{"version":4,"hyper":[]}"#;
        let error = ToAgent::decode(future.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("version 4"), "{error}");
        let long = vec![b' '; MAX_MESSAGE + 1];
        assert!(matches!(ToAgent::decode(&long), Err(MessageError::Long { .. })));
    }

    #[test]
    fn t0_the_longest_piece_fits_a_message() {
        let record = RecordName::new(&"r".repeat(200)).unwrap();
        let bytes = vec![0xff; MAX_PIECE];
        let answer = Answer::Piece { record, offset: u64::MAX, bytes };
        let standing = Standing::Restoring { why: Why::LeaseRanOut };
        let message = FromAgent { version: VERSION, experiment: id(), standing, answer };
        let encoded = message.encode();
        assert!(encoded.len() <= MAX_MESSAGE, "{}", encoded.len());
        assert_eq!(FromAgent::decode(&encoded).unwrap(), message);
    }

    proptest::proptest! {
        #[test]
        fn t0_no_bytes_make_decoding_panic(bytes: Vec<u8>) {
            let _ = ToAgent::decode(&bytes);
            let _ = FromAgent::decode(&bytes);
        }
    }
}
