// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that a listener heard and that are of no stream, as its results show them.

use crate::listen::{Listener, StreamSource};
use serde::{Deserialize, Serialize};

/// Messages of one kind that have no header of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherMessages {
    /// Who sent them; `null` where that is not known, or of several.
    pub from: Option<String>,
    /// Of frames: `0x0806`.
    pub ethertype: Option<String>,
    /// Of frames with UDP: where they go.
    pub to_port: Option<u16>,
    /// Why they are of no stream.
    pub reason: String,
    /// How many.
    pub messages: u64,
}

impl OtherMessages {
    /// All that were heard.
    pub(super) fn of(listener: &Listener) -> Vec<OtherMessages> {
        let (kinds, more) = listener.others();
        let mut all: Vec<OtherMessages> = kinds
            .iter()
            .map(|(kind, messages)| OtherMessages {
                from: Some(kind.from)
                    .filter(|from| *from != StreamSource::Unknown)
                    .map(|from| from.to_string()),
                ethertype: kind.ethertype.map(|ethertype| format!("{ethertype:#06x}")),
                to_port: kind.to_port,
                reason: kind.reason.to_string(),
                messages: *messages,
            })
            .collect();
        if more > 0 {
            all.push(OtherMessages {
                from: None,
                ethertype: None,
                to_port: None,
                reason: format!("of more than {} kinds, which are not told apart", kinds.len()),
                messages: more,
            });
        }
        all
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let mut text = format!("{} messages", self.messages);
        for (word, value) in [
            ("from", self.from.clone()),
            ("to port", self.to_port.map(|port| port.to_string())),
            ("EtherType", self.ethertype.clone()),
        ] {
            if let Some(value) = value {
                text += &format!(" {word} {value}");
            }
        }
        format!("{text}: {}", self.reason)
    }
}
