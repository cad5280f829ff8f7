// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Getting the privilege that a laboratory needs: there already, or inside a user namespace of our
//! own, which needs none.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use timewire_sys::namespace::{self, Capabilities, Capability, Namespace};

use crate::LabError;

/// What a laboratory stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The host's own privilege: everything.
    Full,
    /// A user namespace: own networks and `AF_PACKET`, but no real-time scheduling and no BPF. All
    /// of it vanishes with the last process inside.
    UserNamespace,
}

/// Sees to it that this process may build a laboratory. Call it first in `main`: it needs a process
/// with one thread, and it can change which networks, users and `/run` this process sees.
///
/// In a user namespace `/run` is empty, apart from `XDG_RUNTIME_DIR` when that is in it.
///
/// **Errors**: `Unsupported`, naming the setting or kernel feature that is missing.
pub fn enter() -> Result<Privilege, LabError> {
    let held = Capabilities::of_this_process()
        .map_err(|source| LabError::Namespace { what: "read capabilities".into(), source })?;
    let enough = held.has(Capability::NetAdmin) && held.has(Capability::SysAdmin);
    if enough && namespace::effective_user() == 0 && can_name_namespaces() {
        return Ok(if in_first_user_namespace() {
            Privilege::Full
        } else {
            Privilege::UserNamespace
        });
    }
    enter_user_namespace()?;
    Ok(Privilege::UserNamespace)
}

/// Whether the directory of named namespaces can be there, and is ours.
fn can_name_namespaces() -> bool {
    let made = DirBuilder::new().mode(0o755).recursive(true).create("/run/netns");
    let user = namespace::effective_user();
    made.is_ok() && fs::metadata("/run/netns").is_ok_and(|dir| dir.uid() == user)
}

fn in_first_user_namespace() -> bool {
    let mapping = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    mapping.split_whitespace().eq(["0", "0", "4294967295"])
}

fn enter_user_namespace() -> Result<(), LabError> {
    let (user, group) = (namespace::effective_user(), namespace::effective_group());
    namespace::unshare(&[Namespace::User, Namespace::Network, Namespace::Mount])
        .map_err(no_user_namespace)?;
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ];
    for (file, content) in maps {
        fs::write(file, content).map_err(|source| restricted("mapping a user", source))?;
    }
    own_run_directory().map_err(|source| restricted("mounting /run", source))
}

/// Puts an empty `/run` over the host's, for our names alone; the user's own directory stays.
fn own_run_directory() -> io::Result<()> {
    namespace::make_mounts_private()?;
    let own = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|dir| dir.starts_with("/run") && dir.is_dir());
    let kept = own.as_ref().map(File::open).transpose()?;
    namespace::mount_tmpfs(Path::new("/run"))?;
    if let (Some(dir), Some(kept)) = (own, kept) {
        fs::create_dir_all(&dir)?;
        namespace::bind_mount(Path::new(&format!("/proc/self/fd/{}", kept.as_raw_fd())), &dir)?;
    }
    Ok(())
}

fn no_user_namespace(source: io::Error) -> LabError {
    let setting = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let (missing, remedy) = if setting("/proc/sys/user/max_user_namespaces").as_deref() == Some("0")
    {
        (
            "CAP_NET_ADMIN and CAP_SYS_ADMIN, and user namespaces are switched off",
            "run as root, or: sysctl user.max_user_namespaces=10000",
        )
    } else if setting("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        (
            "CAP_NET_ADMIN and CAP_SYS_ADMIN, and user namespaces are for root alone",
            "run as root, or: sysctl kernel.unprivileged_userns_clone=1",
        )
    } else if !Path::new("/proc/self/ns/user").exists() {
        (
            "CAP_NET_ADMIN and CAP_SYS_ADMIN, and the kernel has no user namespaces",
            "run as root, or use a kernel with CONFIG_USER_NS",
        )
    } else {
        (
            "CAP_NET_ADMIN and CAP_SYS_ADMIN, and user namespaces are refused",
            "run as root; in a container, give it these capabilities or allow unshare",
        )
    };
    LabError::Unsupported { missing, remedy, source }
}

/// A user namespace that was given, but without privilege inside it.
fn restricted(what: &'static str, source: io::Error) -> LabError {
    let apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
    let by_apparmor = fs::read_to_string(apparmor).is_ok_and(|text| text.trim() == "1");
    if by_apparmor {
        return LabError::Unsupported {
            missing: "CAP_NET_ADMIN and CAP_SYS_ADMIN, and AppArmor restricts user namespaces",
            remedy: "run as root, or: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            source,
        };
    }
    LabError::Namespace { what: format!("prepare a user namespace ({what})"), source }
}
