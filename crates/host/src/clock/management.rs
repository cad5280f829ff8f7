// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Management messages of PTP (IEEE 1588-2008 clause 15) as values, to bytes and from bytes.
//!
//! What a value does not name is not kept: flags, correction and the other fields of the header
//! that say nothing in a management message.

use thiserror::Error;

use super::dataset::{DataSet, DataSetId, PortIdentity, emit_port, port_identity};
use super::wire::Reading;

/// A management message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// 0 for plain PTP, 1 for 802.1AS. **Units**: 4 bits.
    pub transport_specific: u8,
    /// Its domain.
    pub domain: u8,
    /// Who says it.
    pub source: PortIdentity,
    /// Which question it asks or answers.
    pub sequence: u16,
    /// Whom it is for.
    pub target: PortIdentity,
    /// Clocks it may pass.
    pub boundary_hops: u8,
    /// What it is to do.
    pub action: Action,
    /// About what.
    pub body: Body,
}

/// What a message is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask.
    Get,
    /// Change.
    Set,
    /// Answer.
    Response,
    /// Have something done.
    Command,
    /// It was done.
    Acknowledge,
}

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A data set, without its values: a question.
    Question(DataSetId),
    /// A data set, with its values.
    Values(Box<DataSet>),
    /// Another number than those of [`DataSetId`], and its bytes.
    Other {
        /// Its number.
        id: u16,
        /// Its bytes, of an even count.
        bytes: Vec<u8>,
    },
    /// The question was not answered.
    Refused {
        /// What was asked about.
        id: u16,
        /// Why not.
        error: ErrorId,
    },
}

/// Why a clock does not answer (IEEE 1588-2008 table 72).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorId(pub u16);

impl ErrorId {
    /// In words.
    pub fn words(self) -> &'static str {
        match self.0 {
            1 => "the answer is too big",
            2 => "it does not know this data set",
            3 => "the message has the wrong length",
            4 => "a value is wrong",
            5 => "it cannot be set",
            6 => "it does not support this",
            0xFFFE => "something failed",
            _ => "it gives no known reason",
        }
    }
}

/// Bytes that are no management message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It ends before it should.
    #[error("it ends within its {what}")]
    Short {
        /// Where it ends.
        what: &'static str,
    },
    /// Another type of message, or another protocol.
    #[error("it is no management message of PTP version 2")]
    NotManagement,
    /// No action of this number.
    #[error("there is no action {number}")]
    Action {
        /// What was given.
        number: u8,
    },
    /// Something else than data or a refusal in it.
    #[error("it holds something of type {number}, which is neither data nor a refusal")]
    Kind {
        /// What was given.
        number: u16,
    },
    /// A data set that has not the bytes that it should have.
    #[error("{} has {found} bytes where it should have {}", .id.name(), .id.length())]
    Length {
        /// Which one.
        id: DataSetId,
        /// How many there are.
        found: usize,
    },
}

const HEADER: usize = 48;
const MANAGEMENT: u8 = 0x0D;
const VERSION: u8 = 2;
const CONTROL: u8 = 4;
const NO_INTERVAL: u8 = 0x7F;
const TLV_MANAGEMENT: u16 = 1;
const TLV_REFUSED: u16 = 2;

impl Management {
    /// The bytes of the message.
    ///
    /// **Panics** when another data set has more bytes than a message can.
    pub fn emit(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match &self.body {
            Body::Question(id) => {
                body.extend(id.number().to_be_bytes());
                TLV_MANAGEMENT
            }
            Body::Values(set) => {
                body.extend(set.id().number().to_be_bytes());
                set.emit(&mut body);
                TLV_MANAGEMENT
            }
            Body::Other { id, bytes } => {
                body.extend(id.to_be_bytes());
                body.extend(bytes);
                TLV_MANAGEMENT
            }
            Body::Refused { id, error } => {
                body.extend(error.0.to_be_bytes());
                body.extend(id.to_be_bytes());
                body.extend([0; 4]);
                TLV_REFUSED
            }
        };
        let short = |length| u16::try_from(length).expect("invariant: a message is short");
        let mut bytes = Vec::with_capacity(HEADER + 4 + body.len());
        bytes.extend([self.transport_specific << 4 | MANAGEMENT, VERSION]);
        bytes.extend(short(HEADER + 4 + body.len()).to_be_bytes());
        bytes.extend([self.domain, 0, 0, 0]);
        bytes.extend([0; 12]);
        emit_port(self.source, &mut bytes);
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend([CONTROL, NO_INTERVAL]);
        emit_port(self.target, &mut bytes);
        bytes.extend([self.boundary_hops, self.boundary_hops, self.action.number(), 0]);
        bytes.extend(kind.to_be_bytes());
        bytes.extend(short(body.len()).to_be_bytes());
        bytes.extend(body);
        bytes
    }

    /// Reads a message; bytes after it are not looked at.
    ///
    /// **Errors**: bytes that are no management message, with the reason.
    pub fn parse(bytes: &[u8]) -> Result<Management, MessageError> {
        let header = MessageError::Short { what: "header" };
        let r = &mut Reading::new(bytes);
        let (first, version) = (r.u8().ok_or(header)?, r.u8().ok_or(header)?);
        if first & 0x0F != MANAGEMENT || version & 0x0F != VERSION {
            return Err(MessageError::NotManagement);
        }
        let length = usize::from(r.u16().ok_or(header)?);
        let whole = bytes.get(..length).ok_or(MessageError::Short { what: "length" })?;
        let r = &mut Reading::new(whole.get(4..).ok_or(header)?);
        let domain = r.u8().ok_or(header)?;
        r.slice(15).ok_or(header)?;
        let source = port_identity(r).ok_or(header)?;
        let sequence = r.u16().ok_or(header)?;
        r.slice(2).ok_or(header)?;
        let target = port_identity(r).ok_or(header)?;
        let [_, boundary_hops, action, _] = r.take().ok_or(header)?;
        let action = Action::of_number(action & 0x0F)?;
        let body = body(r)?;
        let transport_specific = first >> 4;
        Ok(Management {
            transport_specific,
            domain,
            source,
            sequence,
            target,
            boundary_hops,
            action,
            body,
        })
    }
}

fn body(r: &mut Reading<'_>) -> Result<Body, MessageError> {
    let short = MessageError::Short { what: "data" };
    let kind = r.u16().ok_or(short)?;
    let length = usize::from(r.u16().ok_or(short)?);
    let r = &mut Reading::new(r.slice(length).ok_or(short)?);
    match kind {
        TLV_MANAGEMENT => {
            let number = r.u16().ok_or(short)?;
            let bytes = r.rest();
            match DataSetId::of_number(number) {
                None => Ok(Body::Other { id: number, bytes: bytes.to_vec() }),
                Some(id) if bytes.is_empty() => Ok(Body::Question(id)),
                Some(id) => DataSet::parse(id, bytes)
                    .map(|set| Body::Values(Box::new(set)))
                    .ok_or(MessageError::Length { id, found: bytes.len() }),
            }
        }
        TLV_REFUSED => {
            let error = ErrorId(r.u16().ok_or(short)?);
            Ok(Body::Refused { id: r.u16().ok_or(short)?, error })
        }
        number => Err(MessageError::Kind { number }),
    }
}

impl Action {
    fn number(self) -> u8 {
        match self {
            Action::Get => 0,
            Action::Set => 1,
            Action::Response => 2,
            Action::Command => 3,
            Action::Acknowledge => 4,
        }
    }

    fn of_number(number: u8) -> Result<Action, MessageError> {
        let all =
            [Action::Get, Action::Set, Action::Response, Action::Command, Action::Acknowledge];
        let found = all.into_iter().find(|action| action.number() == number);
        found.ok_or(MessageError::Action { number })
    }
}
