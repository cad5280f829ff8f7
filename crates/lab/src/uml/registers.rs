// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for the registers of the host's CPU: a kernel before 6.13 does not have it for those of a
//! CPU with AMX, and gets help from a small library that is preloaded into it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::config::Series;
use super::kernel::{Kernel, run_logged};
use crate::LabError;
use crate::cache::{self, Work};
use crate::deb;

const SOURCE: &str = include_str!("registers.c");
/// What the kernel has room for. **Units**: bytes; linux v6.12
/// `arch/x86/um/user-offsets.c:HOST_FP_SIZE`.
const FP_STATE_BYTES: u32 = 2696;
/// The first that asks the host how many there are.
const ASKS: &str = "6.13";

/// What is preloaded into a kernel's program on this host; on most there is nothing to preload. It
/// is kept in the cache.
///
/// **Errors**: it is needed and cannot be compiled.
pub(super) fn preload(kernel: &Kernel) -> Result<Option<PathBuf>, LabError> {
    let asks = Series::parse(ASKS).expect("invariant: a series");
    let has_room = timewire_sys::cpu::register_bytes().is_none_or(|bytes| bytes <= FP_STATE_BYTES);
    if has_room || Series::parse(&kernel.about().release).is_some_and(|series| series >= asks) {
        return Ok(None);
    }
    compile().map(Some)
}

/// The library; it is compiled when it is not in the cache.
fn compile() -> Result<PathBuf, LabError> {
    let kept = cache::kernels()?.join(format!("registers-{}.so", cache::fingerprint(&[SOURCE])));
    if kept.is_file() {
        return Ok(kept);
    }
    if !deb::have("gcc") {
        return Err(LabError::Missing {
            what: "`gcc`, without which kernels before 6.13 have no room for this CPU's registers"
                .to_owned(),
            remedy: "apt-get install --no-install-recommends gcc libc6-dev".to_owned(),
        });
    }
    let work = Work::begin()?;
    let (source, made) = (work.path().join("registers.c"), work.path().join("registers.so"));
    fs::write(&source, SOURCE).map_err(LabError::file("write", &source))?;
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]).arg(&made).arg(&source);
    run_logged(gcc, &work, "compiling room for this CPU's registers", &mut |_| {})?;
    fs::rename(&made, &kept).map_err(LabError::file("create", &kept))?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a program that is traced it reads and writes the registers up to SSE alone, as if it had
    /// no room for more.
    const TRACER: &str = r#"
#include <elf.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	static char whole[32768], again[32768];
	struct iovec part = { whole, 576 }, all = { again, sizeof(again) };
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(child, 0, 0);
	if (ptrace(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, &part))
		return 3;
	/* The low bytes of xmm7, and that SSE is in use. */
	whole[160 + 7 * 16] = 42;
	whole[512] |= 2;
	int refused = ptrace(PTRACE_SETREGSET, child, (void *)NT_X86_XSTATE, &part) != 0;
	ptrace(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, &all);
	printf("%d %d\n", refused, again[160 + 7 * 16] == 42);
	kill(child, SIGKILL);
	return 0;
}
"#;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn t3_registers_are_put_into_the_whole_that_the_host_has() {
        if !deb::have("gcc") {
            return eprintln!("SKIP: no gcc");
        }
        let library = compile().unwrap();
        let work = Work::begin().unwrap();
        let (source, tracer) = (work.path().join("tracer.c"), work.path().join("tracer"));
        fs::write(&source, TRACER).unwrap();
        let built = Command::new("gcc").arg("-o").arg(&tracer).arg(&source).status().unwrap();
        assert!(built.success());
        let said = |preload: &str| {
            let output = Command::new(&tracer).env("LD_PRELOAD", preload).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(said(""), "1 0\n", "the host takes the registers only whole");
        assert_eq!(said(library.to_str().unwrap()), "0 1\n");
    }
}
