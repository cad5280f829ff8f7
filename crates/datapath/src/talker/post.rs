// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages that a program posts from other threads: buffers go from the poster to the talker and
//! back through bounded queues, so that neither allocates nor waits for the other.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use timewire_base::{Instant, Tai};
use timewire_sys::event::Wake;

/// A message on its way to the talker.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) stream: usize,
    pub(crate) buffer: Box<[u8]>,
    pub(crate) length: usize,
    pub(crate) deadline: Option<Instant<Tai>>,
}

/// Why a message was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// As many messages wait as the stream can have.
    #[error("as many messages wait as the stream can have")]
    Full,
    /// The message is longer than the stream's payload.
    #[error("the message is longer than the stream's payload")]
    TooLong,
    /// The talker is gone.
    #[error("the talker is gone")]
    Gone,
}

/// Posts messages of one stream; may be in another thread than the talker.
#[derive(Debug)]
pub struct Poster {
    stream: usize,
    free: Receiver<Box<[u8]>>,
    posts: SyncSender<Post>,
    bell: Arc<Bell>,
}

/// Wakes the talker, if it sleeps.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) wake: Wake,
    pub(crate) sleeps: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        Ok(Bell { wake: Wake::new()?, sleeps: AtomicBool::new(false) })
    }

    fn ring(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // It fails only when it is set already.
            let _ = self.wake.set();
        }
    }
}

impl Poster {
    /// Gives a message to the talker, which sends it at once, or not at all after its deadline.
    /// One system call if the talker sleeps, else none; never allocates or waits.
    ///
    /// **Errors**: no buffer is free, or the message is too long; nothing was posted.
    pub fn post(&self, message: &[u8], deadline: Option<Instant<Tai>>) -> Result<(), PostError> {
        let Ok(mut buffer) = self.free.try_recv() else { return Err(PostError::Full) };
        let length = message.len();
        let Some(to) = buffer.get_mut(..length) else {
            // The buffer must not be lost with the message.
            let post = Post { stream: self.stream, buffer, length: usize::MAX, deadline };
            return match self.posts.try_send(post) {
                Ok(()) => Err(PostError::TooLong),
                Err(_) => Err(PostError::Gone),
            };
        };
        to.copy_from_slice(message);
        let post = Post { stream: self.stream, buffer, length, deadline };
        self.posts.try_send(post).map_err(|_| PostError::Gone)?;
        self.bell.ring();
        Ok(())
    }
}

/// The talker's end.
#[derive(Debug)]
pub(crate) struct PostBox {
    posts: Receiver<Post>,
    /// The first of those that wait, if it was looked at.
    waiting: Option<Post>,
    sender: SyncSender<Post>,
    /// Of each stream, the way back of its buffers.
    back: Vec<Option<SyncSender<Box<[u8]>>>>,
    pub(crate) bell: Arc<Bell>,
}

impl PostBox {
    /// For so many streams with so many buffers altogether.
    pub(crate) fn new(streams: usize, buffers: usize) -> io::Result<PostBox> {
        let (sender, posts) = sync_channel(buffers.max(1));
        let back = (0..streams).map(|_| None).collect();
        Ok(PostBox { posts, waiting: None, sender, back, bell: Arc::new(Bell::new()?) })
    }

    /// The poster of a stream: `depth` buffers of `longest` bytes.
    pub(crate) fn poster(&mut self, stream: usize, depth: usize, longest: usize) -> Poster {
        let (back, free) = sync_channel(depth.max(1));
        for _ in 0..depth {
            let buffer = vec![0; longest].into_boxed_slice();
            back.try_send(buffer).expect("invariant: the queue has room for all buffers");
        }
        self.back[stream] = Some(back);
        let (posts, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        Poster { stream, free, posts, bell }
    }

    pub(crate) fn has_posters(&self) -> bool {
        self.back.iter().any(Option::is_some)
    }

    /// Says that the talker sleeps from now on; whether it may, since nothing waits.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.bell.sleeps.store(true, Ordering::SeqCst);
        // What was posted before that rang no bell.
        self.waiting = self.waiting.take().or_else(|| self.posts.try_recv().ok());
        self.waiting.is_none()
    }

    /// The next message that waits.
    pub(crate) fn take(&mut self) -> Option<Post> {
        loop {
            let post = self.waiting.take().or_else(|| self.posts.try_recv().ok())?;
            if post.length != usize::MAX {
                return Some(post);
            }
            self.give_back(post);
        }
    }

    /// Lets the poster use the buffer again.
    pub(crate) fn give_back(&self, post: Post) {
        if let Some(back) = &self.back[post.stream] {
            // It fails only when the poster is gone, and then nobody wants the buffer.
            let _ = back.try_send(post.buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_messages_come_in_order_and_buffers_go_back() {
        let mut posts = PostBox::new(2, 4).unwrap();
        let poster = posts.poster(1, 2, 8);
        for round in 0..5_u8 {
            let deadline = Some(Instant::from_ns(round.into()));
            poster.post(&[round; 3], deadline).unwrap();
            poster.post(&[round; 8], None).unwrap();
            assert_eq!(poster.post(b"no", None), Err(PostError::Full));
            let (first, second) = (posts.take().unwrap(), posts.take().unwrap());
            assert_eq!((first.stream, first.length, first.deadline), (1, 3, deadline));
            assert_eq!(first.buffer[..3], [round; 3]);
            assert_eq!((second.length, second.deadline), (8, None));
            assert!(posts.take().is_none());
            posts.give_back(first);
            posts.give_back(second);
        }
        // A message that is too long costs no buffer.
        for _ in 0..5 {
            assert_eq!(poster.post(&[0; 9], None), Err(PostError::TooLong));
            assert!(posts.take().is_none());
        }
        drop(posts);
        assert!(poster.post(b"x", None).is_err());
    }
}
