// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host is like, as far as it matters for timing. Reading it changes nothing.
//!
//! Not here: changing it.

mod cpus;
mod difference;
mod facts;
pub mod model;
mod read;
mod reading;
pub mod source;

pub use difference::Difference;
pub use facts::{Fact, Level, facts};
pub use model::{Reading, Snapshot};
pub(crate) use source::KERNEL_THREADS_UNSEEN;

use std::path::Path;

use timewire_base::IfName;

use crate::HostError;
use source::{Live, in_network, with_own_sysfs};

impl Snapshot {
    /// This host and interfaces of the caller's network namespace, all when none is named, with the
    /// VLANs on them.
    ///
    /// **Errors**: interfaces cannot be listed; one of these is not there.
    pub fn of_this_host(interfaces: &[IfName]) -> Result<Snapshot, HostError> {
        with_own_sysfs(|| Snapshot::read(&Live, interfaces))
    }

    /// This host and interfaces of a network namespace.
    ///
    /// **Errors**: as [`Snapshot::of_this_host`]; the namespace cannot be entered.
    pub fn of_network(netns: &Path, interfaces: &[IfName]) -> Result<Snapshot, HostError> {
        in_network(netns, || Snapshot::read(&Live, interfaces))?
    }

    /// This host, and all interfaces of each of these network namespaces; the host is read once.
    ///
    /// **Errors**: as [`Snapshot::of_network`].
    pub fn of_networks(networks: &[&Path]) -> Result<Vec<Snapshot>, HostError> {
        let host = read::host_alone(&Live);
        let one = |netns: &&Path| in_network(netns, || read::with_host(&Live, host.clone(), &[]))?;
        networks.iter().map(one).collect()
    }

    /// The text of a snapshot.
    ///
    /// **Errors**: it is none, or one of another version; a sentence says what is wrong.
    pub fn parse(text: &str) -> Result<Snapshot, String> {
        /// Read first: another version may have other fields.
        #[derive(serde::Deserialize)]
        struct Versioned {
            schema: String,
        }
        let Versioned { schema } = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if schema != model::SCHEMA {
            return Err(format!("it is of version `{schema}`, not `{}`", model::SCHEMA));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// Its text, the same for equal snapshots.
    pub fn to_text(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("invariant: a snapshot has a form in JSON") + "\n"
    }
}
