// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What can go wrong with links, peers and files.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use timewire_base::Failure;
use timewire_sys::namespace::user_in_words;

use crate::links::identity::Fingerprint;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// A system call or a file operation failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was being done, after "cannot".
        doing: String,
        /// Why.
        source: io::Error,
    },
    /// The other end said goodbye.
    #[error("the other end closed the link: {reason}")]
    Closed {
        /// In its words.
        reason: String,
    },
    /// The transport ended in the middle, or without a goodbye.
    #[error("the link was cut: {why}")]
    Cut {
        /// What was seen.
        why: String,
    },
    /// Nothing came for longer than a living peer would be silent, or nothing was taken.
    #[error("the other end is silent for {seconds} s")]
    Silent {
        /// The limit.
        seconds: u64,
    },
    /// The other end does not keep to the protocol.
    #[error("the other end does not keep to the protocol: {what}")]
    Protocol {
        /// What was wrong.
        what: String,
    },
    /// A message is longer than the link carries.
    #[error("a message of {bytes} bytes is too long for the link, which carries {most}")]
    TooLong {
        /// The message.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The handshake of TLS failed.
    #[error("no secure link with {peer}: {why}")]
    Handshake {
        /// The address.
        peer: String,
        /// Why.
        why: String,
    },
    /// The other end is not who it should be.
    #[error("{peer} is not a paired {role}: its fingerprint is {fingerprint}")]
    NotPaired {
        /// The address.
        peer: String,
        /// What it would have to be.
        role: &'static str,
        /// What it showed.
        fingerprint: Fingerprint,
    },
    /// The other end does not know this station's key.
    #[error("the other end does not trust this station")]
    NotTrusted,
    /// A local socket with somebody else at its other end.
    #[error("{socket} belongs to {}; only this user and root are trusted", user_in_words(*.user))]
    OtherUser {
        /// The socket.
        socket: String,
        /// Who was found.
        user: u32,
    },
    /// A text that is no fingerprint or no code.
    #[error("`{text}` is not a {what}: {right}")]
    NotA {
        /// What was given.
        text: String,
        /// What it should have been.
        what: &'static str,
        /// What would be right.
        right: &'static str,
    },
    /// A key or a peer's file that cannot be trusted or read.
    #[error("{path} cannot be used: {why}", path = path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// Why, and what would be right.
        why: String,
    },
    /// Pairing was refused.
    #[error("not paired: {why}")]
    Pairing {
        /// Why.
        why: String,
    },
    /// The other end gave up.
    #[error("the other end says: {why}")]
    Told {
        /// In its words.
        why: String,
    },
    /// A set of files is refused.
    #[error("the files are refused: {why}")]
    Files {
        /// Which file, and why.
        why: String,
    },
}

impl Failure for LinkError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            LinkError::NotPaired { .. } | LinkError::NotTrusted => Some(
                "pair the two stations: `timewire agent pair` there, then \
                 `timewire agent pair HOST:PORT --code CODE` here",
            ),
            LinkError::Pairing { .. } => {
                Some("`timewire agent pair` on the other station shows a fresh code")
            }
            _ => None,
        };
        hint.map(Cow::Borrowed)
    }
}

impl LinkError {
    /// What the other end said.
    pub(crate) fn told(why: &str) -> LinkError {
        LinkError::Told { why: fit_to_be_shown(why) }
    }

    /// Whether the link is over and a new one may work: it was cut, or the peer was silent.
    pub fn is_lost_link(&self) -> bool {
        matches!(self, LinkError::Cut { .. } | LinkError::Silent { .. })
    }

    /// Whether trying again cannot help: the other end is another than it should be, or does not
    /// know this station.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            LinkError::NotPaired { .. }
                | LinkError::NotTrusted
                | LinkError::OtherUser { .. }
                | LinkError::Protocol { .. }
                | LinkError::BadFile { .. }
        )
    }
}

/// For `map_err`: an operating system's error with what was being done.
pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LinkError {
    let doing = doing.into();
    move |source| LinkError::System { doing, source }
}

/// What is wrong may have words of the other end in it.
pub(crate) fn protocol(what: impl AsRef<str>) -> LinkError {
    LinkError::Protocol { what: fit_to_be_shown(what.as_ref()) }
}

/// What somebody else said: none of it moves a cursor, or is long.
fn fit_to_be_shown(text: &str) -> String {
    text.chars().take(400).map(|c| if c.is_control() { '?' } else { c }).collect()
}
