// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unpacking compressed parts of a kernel package with the host's programs, and the kernel out of
//! the file that boot loaders take: started from there it would unpack itself, at one nanosecond
//! per instruction, to an address of chance.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::{LabError, tools};

/// Unpacks bytes with `xz`, `zstd` or `gzip`; `of` names their source in errors.
///
/// **Errors**: the program is missing, or refuses.
pub fn with(program: &'static str, packed: &[u8], of: &Path) -> Result<Vec<u8>, LabError> {
    let failed = |why: String| LabError::Packages { what: format!("unpack {}", of.display()), why };
    let mut command = Command::new(program);
    command.arg("-dc").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tools::spawn(command).map_err(|source| {
        let package = if program == "xz" { "xz-utils" } else { program };
        LabError::Missing {
            what: format!("`{program}`, which unpacks kernels ({source})"),
            remedy: format!("apt-get install {package}"),
        }
    })?;
    let mut stdin = child.stdin.take().expect("invariant: stdin was piped");
    let output = thread::scope(|scope| {
        // A program that stops reading says why on stderr; that is the better message.
        scope.spawn(move || drop(stdin.write_all(packed)));
        tools::output_of(&mut child)
    });
    let output = output.map_err(|source| failed(format!("`{program}`: {source}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("`{program}` cannot unpack it: {}", stderr.trim())))
}

/// The kernel inside a `vmlinuz` of x86, as an ELF file.
///
/// **Source**: linux v6.12 Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset` and
/// `payload_length`; the payload ends with its unpacked length.
///
/// **Errors**: it is none, or of a compression that is not known here.
pub fn vmlinux(file: &Path, bytes: &[u8]) -> Result<Vec<u8>, LabError> {
    let wrong = |why: &str| LabError::Packages {
        what: "take the kernel out of its boot file".to_owned(),
        why: format!("{} {why}", file.display()),
    };
    let word = |offset: usize| {
        let bytes = bytes.get(offset..offset + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return Err(wrong("is no bootable kernel of x86"));
    }
    // Zero sectors of set-up code mean four, from the days of floppy disks.
    let sectors =
        bytes.get(0x1f1).map_or(0, |&count| if count == 0 { 4 } else { usize::from(count) });
    let payload = word(0x248).zip(word(0x24c)).and_then(|(offset, length)| {
        let start = (sectors + 1).checked_mul(512)?.checked_add(offset)?;
        bytes.get(start..start.checked_add(length)?)?.split_last_chunk::<4>()
    });
    let (packed, length) = payload.ok_or_else(|| wrong("is cut short"))?;
    let program = match packed {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => return Err(wrong("is packed neither with xz nor with zstd")),
    };
    let kernel = with(program, packed, file)?;
    if u32::try_from(kernel.len()).ok() != Some(u32::from_le_bytes(*length)) {
        return Err(wrong("does not have the length it promises"));
    }
    if !kernel.starts_with(b"\x7fELF") {
        return Err(wrong("holds no ELF file"));
    }
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot file around a payload, packed by the host's `xz`.
    fn boot_file(kernel: &[u8]) -> Vec<u8> {
        let mut child = Command::new("xz")
            .args(["-c", "--check=crc32"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(kernel).unwrap();
        let mut packed = child.wait_with_output().unwrap().stdout;
        packed.extend(u32::try_from(kernel.len()).unwrap().to_le_bytes());
        let mut bytes = vec![0; 512 * 2];
        bytes[0x1f1] = 1;
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        let length = u32::try_from(packed.len()).unwrap();
        bytes[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        bytes.extend([0xaa; 16]);
        bytes.extend(packed);
        bytes
    }

    #[test]
    fn t0_the_kernel_is_found_in_its_boot_file() {
        let kernel = [b"\x7fELF".as_slice(), &[7; 5_000]].concat();
        let file = Path::new("vmlinuz");
        let bytes = boot_file(&kernel);
        assert_eq!(vmlinux(file, &bytes).unwrap(), kernel);
        let cut = vmlinux(file, &bytes[..bytes.len() - 1]).unwrap_err();
        assert!(cut.to_string().contains("vmlinuz is cut short"), "{cut}");
        let other = vmlinux(file, &boot_file(b"no ELF")).unwrap_err();
        assert!(other.to_string().contains("holds no ELF file"), "{other}");
        assert!(vmlinux(file, b"short").is_err());
    }
}
