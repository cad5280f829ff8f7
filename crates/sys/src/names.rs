// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a program without shared libraries finds the addresses of hosts.

/// Has names of hosts looked up in `/etc/hosts` and by DNS alone, whatever `/etc/nsswitch.conf`
/// says, if this program was linked statically. The GNU C library has both of these built in. All
/// else is plug-ins, made for the C library of the host: a static program that loads one gets a
/// second, perhaps other, C library, and may crash.
///
/// In a program that the dynamic linker has loaded it does nothing.
///
/// **Source**: `nss.h` of the GNU C library, and its manual, "NSS Basics".
pub fn without_plugins() {
    #[cfg(target_env = "gnu")]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            if is_static() {
                // SAFETY: two texts that end with a zero; the library copies them, and locks its
                // own table.
                unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
            }
        });
    }
}

/// Whether the kernel started this program without a dynamic linker. Not told by
/// `cfg(target_feature = "crt-static")`: a crate is the same in both kinds of program.
#[cfg(target_env = "gnu")]
fn is_static() -> bool {
    // SAFETY: getauxval() has no preconditions.
    unsafe { libc::getauxval(libc::AT_BASE) == 0 }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// 0, or -1 with `errno` for a database or a service that it does not know.
    fn __nss_configure_lookup(
        database: *const libc::c_char,
        services: *const libc::c_char,
    ) -> libc::c_int;
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    #[test]
    fn t0_a_program_of_the_dynamic_linker_is_none_without_plugins() {
        assert_eq!(is_static(), cfg!(target_feature = "crt-static"));
        without_plugins();
    }
}
