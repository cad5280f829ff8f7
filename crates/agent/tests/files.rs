// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files over links: whole, resumed after a cut anywhere, and never outside of their directory.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::support::{Lines, Numbers, Scratch, TIMEOUT, listen, paired, talkative};
use timewire_agent::links::{
    FileEntry, FileLimits, Link, LinkError, LinkLimits, Manifest, over_unix, receive_files,
    send_files,
};

fn limits() -> FileLimits {
    FileLimits { chunk_bytes: 1_000, timeout: TIMEOUT, ..FileLimits::default() }
}

/// Some files, two of them with the same content.
fn fill(root: &Path) -> Manifest {
    fs::create_dir_all(root.join("bin/deep")).unwrap();
    fs::write(root.join("bin/prog"), Numbers::new(1).bytes(7_500)).unwrap();
    fs::set_permissions(root.join("bin/prog"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("bin/deep/same"), Numbers::new(1).bytes(7_500)).unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("scenario.yaml"), Numbers::new(2).bytes(2_000)).unwrap();
    fs::write(root.join("\u{e9}t\u{e9} 1"), Numbers::new(3).bytes(1_234)).unwrap();
    Manifest::of_directory(root, &limits()).unwrap()
}

/// Two ends, between which only so many bytes pass from the first to the second; how many passed.
fn cut_after(most: usize) -> (Link, Link, JoinHandle<usize>) {
    let (one, mut from) = UnixStream::pair().unwrap();
    let (mut to, other) = UnixStream::pair().unwrap();
    let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let relay = thread::spawn(move || {
        let mut passed = 0;
        let mut buffer = [0; 4_096];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let count = count.min(most - passed);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            passed += count;
            if passed == most {
                break;
            }
        }
        for end in [&from, &to] {
            let _ = end.shutdown(Shutdown::Both);
        }
        passed
    });
    let quiet = LinkLimits { keep_alive: TIMEOUT, ..LinkLimits::default() };
    let other = thread::spawn(move || over_unix(other, quiet).unwrap());
    (over_unix(one, quiet).unwrap(), other.join().unwrap(), relay)
}

type Outcomes = (Result<(), LinkError>, Result<Manifest, LinkError>);

fn transfer(most: usize, from: &Path, manifest: &Manifest, to: &Path) -> (Outcomes, usize) {
    let (mut one, mut other, relay) = cut_after(most);
    let outcomes = thread::scope(|scope| {
        let sent = scope.spawn(move || {
            let (sender, receiver) = one.halves();
            send_files(sender, receiver, from, manifest, &limits())
        });
        let (sender, receiver) = other.halves();
        let received = receive_files(sender, receiver, to, &limits());
        drop(other);
        (sent.join().unwrap(), received)
    });
    (outcomes, relay.join().unwrap())
}

fn assert_same(from: &Path, to: &Path, manifest: &Manifest) {
    for file in &manifest.files {
        assert!(fs::read(from.join(&file.path)).unwrap() == fs::read(to.join(&file.path)).unwrap());
        let mode = fs::metadata(to.join(&file.path)).unwrap().mode() & 0o7777;
        assert_eq!(mode, file.mode, "{}", file.path);
    }
    // Nothing else is there, and nothing unfinished.
    assert_eq!(&Manifest::of_directory(to, &limits()).unwrap(), manifest);
    assert!(!to.join(".timewire-parts").exists());
}

#[test]
fn t3_a_set_goes_over_tls_and_back_and_what_is_there_is_not_sent() {
    let (agent, controller) = paired();
    let listener = listen(&agent, "127.0.0.1:0", talkative(), &Lines::default());
    let address = listener.address().unwrap();
    let (from, to, back) = (Scratch::new(), Scratch::new(), Scratch::new());
    let manifest = fill(from.path());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut link = controller.connect(address).unwrap();
            let (sender, receiver) = link.halves();
            send_files(sender, receiver, from.path(), &manifest, &limits()).unwrap();
            let got = receive_files(sender, receiver, back.path(), &limits()).unwrap();
            assert_eq!(got, manifest);
        });
        let mut link = listener.accept(TIMEOUT).unwrap();
        let (sender, receiver) = link.halves();
        assert_eq!(receive_files(sender, receiver, to.path(), &limits()).unwrap(), manifest);
        assert_same(from.path(), to.path(), &manifest);
        send_files(sender, receiver, to.path(), &manifest, &limits()).unwrap();
    });
    assert_same(from.path(), back.path(), &manifest);
    // Once more: only the manifest goes, and a mode that was changed is set again.
    fs::set_permissions(to.path().join("empty"), fs::Permissions::from_mode(0o600)).unwrap();
    let (outcomes, passed) = transfer(usize::MAX, from.path(), &manifest, to.path());
    assert!(outcomes.0.is_ok() && outcomes.1.is_ok(), "{outcomes:?}");
    assert!(passed < 2_000, "{passed}");
    assert_same(from.path(), to.path(), &manifest);
}

#[test]
fn t3_a_transfer_that_is_cut_anywhere_goes_on_from_there() {
    let from = Scratch::new();
    let manifest = fill(from.path());
    let whole = {
        let to = Scratch::new();
        let (outcomes, passed) = transfer(usize::MAX, from.path(), &manifest, to.path());
        assert!(outcomes.0.is_ok() && outcomes.1.is_ok(), "{outcomes:?}");
        assert_same(from.path(), to.path(), &manifest);
        passed
    };
    // The same content is sent once.
    assert!(whole < 7_500 + 2_000 + 1_234 + 3_000, "{whole}");
    let mut resumed = 0;
    for cut in (20..whole - 100).step_by(499) {
        let to = Scratch::new();
        let (outcomes, _) = transfer(cut, from.path(), &manifest, to.path());
        assert!(outcomes.0.is_err() && outcomes.1.is_err(), "cut after {cut}: {outcomes:?}");
        // What is in place is whole.
        for file in &manifest.files {
            if let Ok(found) = fs::read(to.path().join(&file.path)) {
                assert!(found == fs::read(from.path().join(&file.path)).unwrap(), "{cut}");
            }
        }
        let (outcomes, passed) = transfer(usize::MAX, from.path(), &manifest, to.path());
        assert!(outcomes.0.is_ok() && outcomes.1.is_ok(), "cut after {cut}: {outcomes:?}");
        assert_same(from.path(), to.path(), &manifest);
        // All but the offer and the chunk that was cut counts.
        let lost = (passed + cut).saturating_sub(whole);
        assert!(lost < 3_200, "cut after {cut} of {whole}: {passed} more");
        resumed += usize::from(passed + 2_000 < whole);
    }
    assert!(resumed > 10, "{resumed}");
}

#[test]
fn t3_what_a_cut_transfer_left_is_not_believed() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let manifest = fill(from.path());
    let parts = to.path().join(".timewire-parts");
    fs::create_dir(&parts).unwrap();
    // Wrong bytes, too many bytes, and a link to somewhere else.
    let outside = Scratch::new();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    for (at, file) in manifest.files.iter().enumerate() {
        let part = parts.join(&file.sha256);
        match at {
            0 => fs::write(part, "wrong").unwrap(),
            3 => fs::write(part, Numbers::new(9).bytes(9_000)).unwrap(),
            4 => symlink(outside.path().join("precious"), part).unwrap(),
            _ => {}
        }
    }
    let (outcomes, _) = transfer(usize::MAX, from.path(), &manifest, to.path());
    assert!(outcomes.0.is_ok() && outcomes.1.is_ok(), "{outcomes:?}");
    assert_same(from.path(), to.path(), &manifest);
    assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"precious");
}

/// Speaks to a receiver as no honest sender does; the receiver's answer.
fn attack(to: &Path, messages: Vec<Vec<u8>>) -> LinkError {
    let (one, mut other, _relay) = cut_after(usize::MAX);
    let attacker = thread::spawn(move || {
        let (sender, mut receiver) = one.split();
        for message in &messages {
            if sender.send(message).is_err() {
                break;
            }
        }
        while let Ok(Some(_)) = receiver.receive(TIMEOUT) {}
    });
    let (sender, receiver) = other.halves();
    let error = receive_files(sender, receiver, to, &limits()).unwrap_err();
    drop(other);
    attacker.join().unwrap();
    error
}

fn offer(path: &str, size: u64, mode: u32) -> Vec<u8> {
    let path = serde_json::to_string(path).unwrap();
    let sha256 = "ab".repeat(32);
    let file = format!(r#"{{"path":{path},"size":{size},"mode":{mode},"sha256":"{sha256}"}}"#);
    format!(r#"J{{"type":"offer","version":1,"files":[{file}],"more":false}}"#).into_bytes()
}

fn chunk(index: u32, at: u64, bytes: &[u8]) -> Vec<u8> {
    [b"C", &index.to_be_bytes()[..], &at.to_be_bytes()[..], bytes].concat()
}

/// Every path below a directory.
fn tree(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let entry = entry.unwrap();
        all.push(entry.path().display().to_string());
        if entry.file_type().unwrap().is_dir() {
            all.append(&mut tree(&entry.path()));
        }
    }
    all.sort();
    all
}

#[test]
fn t3_paths_that_lead_outside_are_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let (to, outside) = (scratch.path().join("to"), scratch.path().join("outside"));
    fs::create_dir(&to).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, to.join("out")).unwrap();
    let before = tree(scratch.path());
    let absolute = outside.join("x").display().to_string();
    for path in [&absolute, "../outside/x", "a/../../outside/x", "./x", "a//x", "x/", "x\u{7}"] {
        let error = attack(&to, vec![offer(path, 1, 0o644), chunk(0, 0, b"x")]);
        assert!(matches!(error, LinkError::Files { .. }), "{path}: {error}");
        assert_eq!(tree(scratch.path()), before, "{path}");
    }
    for (size, mode) in [(1, 0o4_755), (u64::MAX, 0o644)] {
        let error = attack(&to, vec![offer("x", size, mode)]);
        assert!(matches!(error, LinkError::Files { .. }), "{error}");
        assert_eq!(tree(scratch.path()), before);
    }
}

#[test]
fn t3_links_in_the_way_are_not_followed() {
    let scratch = Scratch::new();
    let (to, outside) = (scratch.path().join("to"), scratch.path().join("outside"));
    let from = scratch.path().join("from");
    for directory in [&to, &outside, &from.join("out/deep"), &from.join("plain")] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(from.join("out/deep/x"), "x").unwrap();
    let manifest = Manifest::of_directory(&from, &limits()).unwrap();
    symlink(&outside, to.join("out")).unwrap();
    let (outcomes, _) = transfer(usize::MAX, &from, &manifest, &to);
    assert!(matches!(outcomes.0, Err(LinkError::Told { .. })), "{outcomes:?}");
    assert!(matches!(outcomes.1, Err(LinkError::System { .. })), "{outcomes:?}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // A link in the file's own place is replaced, and what it points to stays.
    fs::remove_file(to.join("out")).unwrap();
    fs::create_dir_all(to.join("out/deep")).unwrap();
    fs::write(outside.join("precious"), "precious").unwrap();
    symlink(outside.join("precious"), to.join("out/deep/x")).unwrap();
    let (outcomes, _) = transfer(usize::MAX, &from, &manifest, &to);
    assert!(outcomes.0.is_ok() && outcomes.1.is_ok(), "{outcomes:?}");
    assert_same(&from, &to, &manifest);
    assert_eq!(fs::read(outside.join("precious")).unwrap(), b"precious");
    // And a directory of unfinished files that is one.
    let other = scratch.path().join("other");
    fs::create_dir(&other).unwrap();
    symlink(&outside, other.join(".timewire-parts")).unwrap();
    let (outcomes, _) = transfer(usize::MAX, &from, &manifest, &other);
    assert!(outcomes.1.is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn t3_senders_that_do_not_keep_to_the_protocol_put_nothing_in_place() {
    let to = Scratch::new();
    let wrong: [Vec<Vec<u8>>; 8] = [
        vec![b"J{}".to_vec()],
        vec![b"".to_vec()],
        vec![br#"J{"type":"want","files":[],"more":false}"#.to_vec()],
        vec![br#"J{"type":"offer","version":2,"files":[],"more":false}"#.to_vec()],
        vec![offer("x", 3, 0o644), chunk(1, 0, b"abc")],
        vec![offer("x", 3, 0o644), chunk(0, 1, b"bc")],
        vec![offer("x", 3, 0o644), chunk(0, 0, b"abcd")],
        vec![offer("x", 3, 0o644), chunk(0, 0, b"")],
    ];
    for messages in wrong {
        let error = attack(to.path(), messages.clone());
        assert!(matches!(error, LinkError::Protocol { .. }), "{messages:?}: {error}");
        assert!(!to.path().join("x").exists());
    }
    // All as it should be, but for the content.
    let error = attack(to.path(), vec![offer("x", 3, 0o644), chunk(0, 0, b"abc")]);
    assert!(error.to_string().contains("has not the content that was announced"), "{error}");
    assert!(!to.path().join("x").exists());
    let mut numbers = Numbers::new(5);
    for _ in 0..100 {
        let kind = if numbers.below(2) == 0 { b'C' } else { b'J' };
        let length = numbers.below(200);
        let random = [&[kind][..], &numbers.bytes(length)].concat();
        attack(to.path(), vec![offer("x", 3, 0o644), random]);
        assert!(!to.path().join("x").exists());
    }
}

#[test]
fn t3_a_file_that_changes_while_it_is_sent_is_not_put_in_place() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let manifest = fill(from.path());
    fs::write(from.path().join("scenario.yaml"), Numbers::new(7).bytes(2_000)).unwrap();
    let (outcomes, _) = transfer(usize::MAX, from.path(), &manifest, to.path());
    let error = outcomes.0.unwrap_err().to_string();
    assert!(error.contains("`scenario.yaml` has not the content that was announced"), "{error}");
    assert!(outcomes.1.is_err() && !to.path().join("scenario.yaml").exists());
    fs::write(from.path().join("scenario.yaml"), "short").unwrap();
    let (outcomes, _) = transfer(usize::MAX, from.path(), &manifest, to.path());
    let error = outcomes.1.unwrap_err().to_string();
    assert!(error.contains("`scenario.yaml` became shorter meanwhile"), "{error}");
}

#[test]
fn t3_sets_with_what_is_no_file_are_not_made() {
    let from = Scratch::new();
    fill(from.path());
    symlink("empty", from.path().join("link")).unwrap();
    let error = Manifest::of_directory(from.path(), &limits()).unwrap_err().to_string();
    assert!(error.contains("link is neither a file nor a directory"), "{error}");
    assert!(Manifest::of_files(from.path(), &["link"], &limits()).is_err());
    assert!(Manifest::of_files(from.path(), &["../x"], &limits()).is_err());
    let one = Manifest::of_files(from.path(), &["empty"], &limits()).unwrap();
    let FileEntry { path, size, .. } = &one.files[0];
    assert_eq!((path.as_str(), *size), ("empty", 0));
}
