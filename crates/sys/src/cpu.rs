// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the CPU says of itself.

/// How much a program's vector registers take where a tracer reads and writes them, with all that
/// the kernel has switched on (`XCR0`); `None` where the CPU is no x86-64 or does not say it.
///
/// **Units**: bytes.
pub fn register_bytes() -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        /// Intel SDM volume 2A, CPUID: processor extended state enumeration.
        const EXTENDED_STATE: u32 = 0xd;
        #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
        // SAFETY: every x86-64 has CPUID, and it changes nothing.
        let highest = unsafe { __cpuid(0) }.eax;
        #[allow(unused_unsafe, reason = "newer compilers know that it is safe")]
        // SAFETY: as before; this leaf is there.
        let bytes =
            (highest >= EXTENDED_STATE).then(|| unsafe { __cpuid_count(EXTENDED_STATE, 0) }.ebx);
        bytes.filter(|bytes| *bytes > 0)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn t1_the_registers_are_at_least_those_of_every_x86_64() {
        // 512 of FXSAVE and 64 of XSAVE's head.
        assert!(super::register_bytes().is_none_or(|bytes| bytes >= 576));
    }
}
