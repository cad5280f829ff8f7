// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tells one content of a file from any other: SHA-256.

use std::io::{self, Read};

use ring::digest::{Context, SHA256};

/// The SHA-256 of all that is to be read, as 64 hexadecimal digits.
///
/// **Errors**: it cannot be read.
pub fn digest(source: &mut impl Read) -> io::Result<String> {
    let mut context = Context::new(&SHA256);
    let mut buffer = [0; 16_384];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => context.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_the_example_of_the_standard() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(&mut &b"abc"[..]).unwrap(), expected);
    }
}
