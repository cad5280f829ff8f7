// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a function says what went wrong: a negative number, and a text for the calling thread. The
//! text is kept in place, so that also "full", which is part of normal work, allocates nothing.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What went wrong; the numbers are part of the binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Code {
    Usage = -1,
    System = -2,
    Unsupported = -3,
    Full = -4,
    Internal = -5,
}

/// Something went wrong, and the calling thread's text says what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(Code);

/// A function's answer: not negative, or why not.
pub(crate) type Answer = Result<c_int, Failed>;

/// **Units**: bytes with the zero at the end.
const MESSAGE_BYTES: usize = 2_048;

struct Last {
    text: [u8; MESSAGE_BYTES],
    length: usize,
    errno: c_int,
}

thread_local! {
    static LAST: RefCell<Last> =
        const { RefCell::new(Last { text: [0; MESSAGE_BYTES], length: 0, errno: 0 }) };
}

impl Write for Last {
    /// Cuts what has no room, between characters.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = MESSAGE_BYTES - 1 - self.length;
        let mut count = text.len().min(free);
        while !text.is_char_boundary(count) {
            count -= 1;
        }
        for (to, from) in self.text[self.length..].iter_mut().zip(&text.as_bytes()[..count]) {
            // A zero would end the text for its reader.
            *to = if *from == 0 { b'?' } else { *from };
        }
        self.length += count;
        if count < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

impl Failed {
    /// [`Code::Usage`] as an answer of a function that must not touch the thread's text.
    pub(crate) const USAGE_WITHOUT_WORDS: c_int = -1;

    /// With a text, and the kernel's number of the error or 0.
    pub(crate) fn with(code: Code, errno: c_int, text: fmt::Arguments<'_>) -> Failed {
        // While a thread ends its text may be gone; then nobody can ask for it either.
        let _ = LAST.try_with(|last| {
            if let Ok(mut last) = last.try_borrow_mut() {
                last.length = 0;
                last.errno = errno;
                // It fails only when the text is cut.
                let _ = last.write_fmt(text);
                let end = last.length;
                last.text[end] = 0;
            }
        });
        Failed(code)
    }

    /// The caller did something wrong.
    pub(crate) fn usage(text: impl fmt::Display) -> Failed {
        Failed::with(Code::Usage, 0, format_args!("{text}"))
    }

    /// The system refused something.
    pub(crate) fn system(what: impl fmt::Display, error: &io::Error) -> Failed {
        Failed::with(Code::System, errno_of(error), format_args!("{what}: {error}"))
    }

    /// Its number.
    pub(crate) fn code(self) -> c_int {
        match self.0 {
            Code::Usage => -1,
            Code::System => -2,
            Code::Unsupported => -3,
            Code::Full => -4,
            Code::Internal => -5,
        }
    }
}

/// The kernel's number of an error; 0 for one that is not the kernel's.
pub(crate) fn errno_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(0)
}

/// Runs the body of a function of the interface, so that nothing but a number comes out of it.
pub(crate) fn guard(body: impl FnOnce() -> Answer) -> c_int {
    // Safe to go on after a panic: an object that was in use is behind a lock that is poisoned
    // then, and refuses everything but being closed.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(failed)) => failed.code(),
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("without words");
            Failed::with(Code::Internal, 0, format_args!("a defect in Timewire: {text}")).code()
        }
    }
}

/// A count as an answer; the largest number if it is larger.
pub(crate) fn count(number: impl TryInto<c_int>) -> Answer {
    Ok(number.try_into().unwrap_or(c_int::MAX))
}

/// The text of the calling thread's last error; empty when there was none. It stays until the
/// thread's next error.
#[unsafe(no_mangle)]
pub extern "C" fn tw_last_error() -> *const c_char {
    LAST.try_with(|last| last.as_ptr()).map_or(c"".as_ptr(), |last| {
        // SAFETY: `last` points to this thread's text, which lives until the thread ends. No
        // reference to it exists now: it is only borrowed within `Failed::with`, which calls
        // nothing of the caller. Only the address of a field is taken.
        unsafe { (&raw const (*last).text).cast() }
    })
}

/// The kernel's number of the calling thread's last error; 0 when it was not the kernel's.
#[unsafe(no_mangle)]
pub extern "C" fn tw_last_errno() -> c_int {
    LAST.try_with(|last| last.try_borrow().map_or(0, |last| last.errno)).unwrap_or(0)
}

/// The code with which a program that fails so ends, as the program `timewire` does.
#[unsafe(no_mangle)]
pub extern "C" fn tw_exit_code(result: c_int) -> c_int {
    match result {
        0.. => 0,
        -3 => 4,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the text of this thread, which ends with a zero and is copied at once.
        unsafe { CStr::from_ptr(tw_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn t0_a_panic_becomes_a_number_and_a_text() {
        assert_eq!(guard(|| panic!("seven")), -5);
        assert_eq!(last(), "a defect in Timewire: seven");
        assert_eq!(guard(|| panic!("{}", 8)), -5);
        assert_eq!(last(), "a defect in Timewire: 8");
        assert_eq!(guard(|| Ok(3)), 3);
    }

    #[test]
    fn t0_a_long_text_is_cut_between_characters_and_a_zero_does_not_end_it() {
        Failed::usage("ä".repeat(MESSAGE_BYTES));
        assert_eq!(last().len(), MESSAGE_BYTES - 2);
        Failed::usage("a\0b");
        assert_eq!(last(), "a?b");
    }

    #[test]
    fn t0_each_thread_has_its_own_text() {
        Failed::system("here", &io::Error::from_raw_os_error(2));
        assert_eq!(tw_last_errno(), 2);
        std::thread::spawn(|| assert_eq!((last(), tw_last_errno()), (String::new(), 0)))
            .join()
            .unwrap();
        assert!(last().starts_with("here: No such file"));
    }

    #[test]
    fn t0_exit_codes_are_those_of_the_program() {
        let codes: Vec<_> = [0, 7, -1, -2, -3, -4, -5].map(|it| tw_exit_code(it)).into();
        assert_eq!(codes, [0, 0, 2, 2, 4, 2, 2]);
    }
}
