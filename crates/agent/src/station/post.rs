// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A link with threads of its own for both directions, so that who decides never waits for a
//! network. A message for which there is no room is lost, as one on a network would be.

use std::io;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use crate::links::{Link, LinkError, Peer, Sender};

/// What comes over a link.
#[derive(Debug)]
pub(crate) enum Posted {
    /// A message.
    Message(Vec<u8>),
    /// The link is over, and why.
    Gone(LinkError),
}

/// The sending end.
#[derive(Debug)]
pub(crate) struct Post {
    queue: SyncSender<Vec<u8>>,
    sender: Sender,
}

/// How many messages wait to be sent.
const QUEUE: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_secs(1);

impl Post {
    /// Starts the threads; `told` takes what comes, and says whether it wants more.
    ///
    /// **Errors**: no threads.
    pub fn over(
        link: Link,
        mut told: impl FnMut(Posted) -> bool + Send + 'static,
    ) -> io::Result<Post> {
        let (sender, mut receiver) = link.split();
        let (queue, waiting) = mpsc::sync_channel::<Vec<u8>>(QUEUE);
        let outgoing = sender.clone();
        thread::Builder::new().name("link-out".to_owned()).spawn(move || {
            while let Ok(bytes) = waiting.recv() {
                // The receiving side tells of the end.
                if outgoing.send(&bytes).is_err() {
                    break;
                }
            }
            outgoing.close("done");
        })?;
        thread::Builder::new().name("link-in".to_owned()).spawn(move || {
            loop {
                match receiver.receive(POLL_INTERVAL) {
                    Ok(None) => {}
                    Ok(Some(bytes)) => {
                        if !told(Posted::Message(bytes)) {
                            break;
                        }
                    }
                    Err(error) => {
                        told(Posted::Gone(error));
                        break;
                    }
                }
            }
        })?;
        Ok(Post { queue, sender })
    }

    /// Sends a message when there is room.
    pub fn send(&self, bytes: Vec<u8>) {
        // What is lost is said again.
        let _ = self.queue.try_send(bytes);
    }

    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        self.sender.peer()
    }

    /// Ends the link, and says why.
    pub fn close(&self, why: &str) {
        self.sender.close(why);
    }
}
