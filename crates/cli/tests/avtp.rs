// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Streams between two stations on this kernel: files arrive as they were sent, what is wrong is
//! told, and a recording that is ended is complete.

use std::fs;
use std::path::Path;

use crate::support;
use crate::support::{Host, Running, Said, Scratch, timewire, wait_until};
use serde_json::Value as Json;
use timewire_avtp::media::wav::{self, Wav, WavFormat};
use timewire_avtp::pdu::SampleFormat;

const STREAM: &str = "02:00:00:00:00:01/7";

/// Two stations on a link; `None` where they cannot be.
fn pair() -> Option<Host> {
    let host = Host::start()?;
    host.tool("ip netns add talker");
    host.tool("ip netns add listener");
    host.tool("ip link add av0 netns talker type veth peer av0 netns listener");
    for netns in ["talker", "listener"] {
        host.tool_in(netns, "ip link set av0 up");
    }
    Some(host)
}

/// Bytes without pattern.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// A WAVE file.
fn music(sample: SampleFormat, channels: u16, frames: usize) -> Vec<u8> {
    let valid_bits = sample.bits().into();
    let format = WavFormat { sample, channels, rate_hz: 48_000, valid_bits, channel_mask: None };
    wav::write(&Wav { format, samples: &noise(format.frame_bytes() * frames) }).unwrap()
}

/// A byte stream like an encoder's, with the fewest bytes of start codes, or four each.
fn film(pictures: usize, always_four: bool) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut unit = |long: bool, head: u8, body: &[u8]| {
        stream.extend(if long || always_four { [0, 0, 0, 1].as_slice() } else { &[0, 0, 1] });
        stream.push(head);
        stream.extend(body);
    };
    for picture in 0..pictures {
        let key = picture % 10 == 0;
        if key {
            unit(true, 0x67, &[0x42, 0, 0x1f, 0xe9]);
            unit(true, 0x68, &[0xce, 0x3c, 0x80]);
        }
        for slice in 0..3 {
            let length = if key { 3_000 } else { 137 } * slice + 20 + picture * 7 % 90;
            let mut body: Vec<u8> = noise(length).iter().map(|byte| byte | 2).collect();
            // The first bit says whether it is macroblock 0.
            body[0] = if slice == 0 { 0x88 } else { 0x44 };
            unit(slice == 0 && !key, if key { 0x65 } else { 0x41 }, &body);
        }
    }
    stream
}

/// Starts a listener, and waits until it listens.
fn listening(host: &Host, verbs: &[&str], more: &[&str]) -> Running {
    let words = [&[support::TIMEWIRE, "avtp"], verbs, &["--interface", "av0"], more].concat();
    let mut listener = host.spawn_in("listener", &words);
    wait_until("it listens", || {
        assert!(!listener.has_ended(), "{}", listener.stderr());
        listener.stderr().contains("listening on av0")
    });
    listener
}

fn talk(host: &Host, file: &str, more: &[&str]) -> Said {
    let words = ["avtp", "talk", file, "--interface", "av0", "--stream", STREAM];
    host.timewire_in("talker", &[&words, more].concat())
}

/// A busy host may send late; that is no loss, and the file is the same.
const ANY_LATE: [&str; 4] = ["--clock-error", "0s", "--expect", "lost=0,late=1000000"];

/// Sends a file, and records it; what talker and listener say.
fn play(host: &Host, file: &[u8], of_talker: &[&str], of_listener: &[&str]) -> (Json, Json) {
    let scratch = host.scratch().path();
    fs::write(scratch.join("sent"), file).unwrap();
    let _ = fs::remove_file(scratch.join("got"));
    let out = ["--stream", STREAM, "--out", "got", "--idle", "500ms", "--json"];
    let listener = listening(host, &["listen"], &[&out[..], &ANY_LATE, of_listener].concat());
    let told = talk(host, "sent", &[of_talker, &["--json"]].concat()).done().json();
    let heard = listener.end().done().json();
    assert!(fs::read(scratch.join("got")).unwrap() == file, "{told} {heard}");
    (told, heard)
}

#[test]
fn t3_wave_files_arrive_bit_for_bit() {
    let Some(host) = pair() else { return };
    // 12 samples in a packet of class B; the last has fewer.
    for (sample, channels, frames, packets) in
        [(SampleFormat::Int16, 2, 24_000, 2_000), (SampleFormat::Int24, 3, 12_001, 1_001)]
    {
        let file = music(sample, channels, frames);
        let (told, heard) = play(&host, &file, &["--class", "B"], &[]);
        let packets = Json::from(packets);
        assert_eq!(told["schema"], "timewire.avtp-talk/1");
        assert_eq!(told["stream"], STREAM);
        assert_eq!(told["sent"]["packets"], packets);
        assert_eq!(told["sent"]["refused"]["not_taken"], 0);
        assert_eq!(heard["schema"], "timewire.avtp-listen/1");
        for (what, count) in
            [("received", &packets), ("presented", &packets), ("lost", &Json::from(0))]
        {
            assert_eq!(&heard["packets"][what], count, "{what}: {heard}");
        }
        assert_eq!(heard["written"]["samples"], frames);
        assert_eq!(heard["written"]["silent"], 0);
        assert_eq!(heard["margin"]["count"], packets);
        assert_eq!(heard["clock"]["basis"], "stated");
        // Sent at their time or later, so received less than the transit time before theirs.
        assert!(heard["margin"]["max_ns"].as_i64().unwrap() < 50_000_000, "{heard}");
        assert_eq!(heard["ended"], "idle");
    }
    host.is_clean();
}

#[test]
fn t3_h264_files_arrive_bit_for_bit() {
    let Some(host) = pair() else { return };
    for (always_four, codes) in [(false, "shortest"), (true, "four")] {
        let file = film(30, always_four);
        let rate = ["--frame-rate", "100", "--transit", "20ms", "--vlan", "none"];
        let (told, heard) = play(&host, &file, &rate, &["--start-codes", codes]);
        assert_eq!(told["transit_ns"], 20_000_000);
        let packets = &told["sent"]["packets"];
        assert_eq!(&heard["packets"]["presented"], packets);
        assert_eq!(heard["written"]["access_units"], 30);
        assert_eq!(heard["written"]["broken"], 0);
    }
}

#[test]
fn t3_a_recording_that_is_ended_is_a_whole_file() {
    let Some(host) = pair() else { return };
    let file = music(SampleFormat::Int24, 3, 2_401);
    let scratch = host.scratch().path().to_owned();
    fs::write(scratch.join("loop.wav"), &file).unwrap();
    // Nobody says which stream, nor until when.
    let listener = listening(&host, &["listen"], &[&["--out", "got.wav"][..], &ANY_LATE].concat());
    let words =
        [support::TIMEWIRE, "avtp", "talk", "loop.wav", "--interface", "av0", "--stream", "7"];
    let talker = host.spawn_in("talker", &[&words[..], &["--loop", "--class", "B"]].concat());
    let grown = |bytes| fs::metadata(scratch.join("got.wav")).is_ok_and(|it| it.len() > bytes);
    // More than the file once: it is being played again.
    wait_until("it was played twice", || grown(65_000));
    listener.signal("INT");
    let said = listener.end().done();
    assert!(said.stdout.contains("ended on request"), "{said:?}");
    talker.signal("TERM");
    let said = talker.end().done();
    assert!(said.stdout.contains("then ended on request"), "{said:?}");
    let got = fs::read(scratch.join("got.wav")).unwrap();
    let (got, sent) = (wav::read(&got).unwrap(), wav::read(&file).unwrap());
    assert_eq!(got.format, sent.format);
    let again: Vec<u8> = sent.samples.iter().copied().cycle().take(got.samples.len()).collect();
    assert!(got.samples == again && again.len() > 2 * sent.samples.len());
}

#[test]
fn t3_what_is_not_as_expected_is_code_1() {
    let Some(host) = pair() else { return };
    let scratch = host.scratch().path().to_owned();
    let none = host.timewire_in(
        "listener",
        &["avtp", "listen", "--interface", "av0", "--out", "none.wav", "--for", "20ms"],
    );
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stdout.contains("none.wav was not written"), "{none:?}");
    assert!(none.stderr.contains("finding: nothing was heard of it"), "{none:?}");
    assert!(!scratch.join("none.wav").exists());
    fs::write(scratch.join("a.wav"), music(SampleFormat::Int16, 1, 1_200)).unwrap();
    // No packet of class B comes more than 50 ms before its time.
    let expect = ["--out", "got.wav", "--packets", "50", "--expect", "late=99,margin=60ms"];
    let clock = ["--clock-error", "1us"];
    let listener = listening(&host, &["listen"], &[&expect[..], &clock].concat());
    talk(&host, "a.wav", &["--class", "B"]).done();
    let said = listener.end();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("before its time, 60ms expected"), "{said:?}");
    assert!(said.stdout.contains("received 50  lost 0"), "{said:?}");
    // Another stream is not recorded.
    let other = ["--stream", "02:00:00:00:00:01/8", "--out", "other.wav", "--for", "500ms"];
    let listener = listening(&host, &["listen"], &[&other[..], &["--json"]].concat());
    talk(&host, "a.wav", &["--class", "B"]).done();
    let said = listener.end();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert_eq!(said.json()["others"], 100);
    // What came before the interface went away is in the file.
    let listener = listening(&host, &["listen"], &["--out", "half.wav"]);
    talk(&host, "a.wav", &["--class", "B"]).done();
    host.tool_in("listener", "ip link set av0 down");
    let said = listener.end();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("finding: the interface went down or away"), "{said:?}");
    let half = fs::read(scratch.join("half.wav")).unwrap();
    assert_eq!(half, fs::read(scratch.join("a.wav")).unwrap());
}

#[test]
fn t3_an_interface_is_asked_for_the_multicast_frames() {
    let Some(host) = pair() else { return };
    let out = ["--out", "got.wav"];
    let all = listening(&host, &["listen"], &out);
    let flags = |host: &Host| host.tool_in("listener", "ip -d link show av0");
    assert!(flags(&host).contains("allmulti 1"), "{}", flags(&host));
    all.signal("INT");
    all.end();
    assert!(flags(&host).contains("allmulti 0"), "{}", flags(&host));
    let one = listening(&host, &["listen"], &[&out[..], &["--to", "91:e0:f0:00:fe:07"]].concat());
    let groups = |host: &Host| host.tool_in("listener", "ip maddr show dev av0");
    assert!(groups(&host).contains("91:e0:f0:00:fe:07"), "{}", groups(&host));
    assert!(flags(&host).contains("allmulti 0"), "{}", flags(&host));
    fs::write(host.scratch().path().join("a.wav"), music(SampleFormat::Int16, 1, 120)).unwrap();
    talk(&host, "a.wav", &[]).done();
    wait_until("it came", || fs::metadata(host.scratch().path().join("got.wav")).is_ok());
    one.signal("INT");
    one.end();
    assert!(!groups(&host).contains("91:e0:f0"), "{}", groups(&host));
}

#[test]
fn t3_a_clock_is_followed() {
    let Some(host) = pair() else { return };
    for ppb in [0, 2_000, -50_000] {
        let listener = listening(
            &host,
            &["crf", "listen"],
            &[&["--packets", "256", "--json"][..], &ANY_LATE].concat(),
        );
        let ppb_word = ppb.to_string();
        let words = ["avtp", "crf", "talk", "--interface", "av0", "--stream", STREAM];
        let how = [
            "--interval",
            "24",
            "--timestamps",
            "1",
            "--packets",
            "256",
            "--transit",
            "1s",
            "--ppb",
        ];
        host.timewire_in("talker", &[&words[..], &how, &[&ppb_word]].concat()).done();
        let found = listener.end().done().json();
        assert_eq!(found["packets"]["presented"], 256, "{found}");
        // Whole nanoseconds, of 128 ms.
        let rate = found["rate_ppb"].as_i64().unwrap();
        assert!((rate - ppb).abs() <= 8, "{ppb}: {found}");
        assert_eq!(found["schema"], "timewire.avtp-crf/1");
        assert_eq!(
            found["media_clock"], "AudioSample of 48000 Hz, a timestamp every 24",
            "{found}"
        );
    }
}

#[test]
fn t3_can_frames_arrive_line_by_line() {
    let Some(host) = pair() else { return };
    let lines = "123#DEADBEEF\n1F334455#R\n\n7FF##3000102030405060708090A0B\n";
    host.scratch().write("frames", &(lines.to_owned() + "(1.5) can0 001#\n"));
    for more in [&[][..], &["--transit", "5ms"]] {
        let listen = ["--stream", STREAM, "--packets", "4"];
        let listener = listening(&host, &["can", "listen"], &[&listen[..], &ANY_LATE].concat());
        let words =
            ["avtp", "can", "talk", "frames", "--interface", "av0", "--stream", STREAM, "--json"];
        let sent = host.timewire_in("talker", &[&words[..], more].concat()).done().json();
        assert_eq!(sent["packets"], 4);
        let expected = lines.replace("\n\n", "\n") + "001#\n";
        assert_eq!(listener.end().done().stdout, expected);
    }
    host.scratch().write("wrong", "123#00\n12345#00\n");
    let words = ["avtp", "can", "talk", "wrong", "--interface", "av0", "--stream", STREAM];
    host.timewire_in("talker", &words).failed(
        2,
        "error: line 2: `12345` is no identifier of 3 or 8 digits: a frame is like 123#DEADBEEF, \
         1F334455#R or 123##1112233\n",
    );
}

/// A file of this directory with these bytes.
fn put(scratch: &Scratch, name: &str, bytes: &[u8]) -> String {
    fs::write(scratch.path().join(name), bytes).unwrap();
    scratch.join(name)
}

#[test]
fn t1_wrong_files_and_desired_are_told() {
    let scratch = Scratch::new();
    let text = put(&scratch, "text", b"not me");
    let empty = put(&scratch, "empty", b"");
    let wave = put(&scratch, "a.wav", &music(SampleFormat::Int16, 1, 6));
    let silent = put(&scratch, "silent.wav", &music(SampleFormat::Int16, 1, 0));
    let cut = put(&scratch, "cut.wav", &music(SampleFormat::Int16, 1, 6)[..50]);
    let video = put(&scratch, "a.h264", &film(1, false));
    let talk = |more: &[&str]| {
        let words = ["avtp", "talk", "--interface", "no-such-one", "--stream", STREAM];
        timewire(&[&words[..], more].concat())
    };
    let neither = "neither WAVE (`RIFF`) nor an H.264 byte stream (00 00 01 or 00 00 00 01): it \
                   begins with";
    let rate = ["--frame-rate", "25"];
    for (file, more, why) in [
        (&text, &[][..], format!("{neither} 6e 6f 74 20")),
        (&empty, &[], format!("{neither} nothing")),
        (&silent, &[], "it has no samples".to_owned()),
        (&cut, &[], "a chunk at byte 44 needs 12 bytes, 6 are there".to_owned()),
        (&wave, &rate, "audio has its rate in the file: no --frame-rate".to_owned()),
        (&video, &[], "an H.264 byte stream does not say its rate: give --frame-rate".to_owned()),
    ] {
        talk(&[&[file.as_str()], more].concat()).failed(2, &format!("error: {file}: {why}\n"));
    }
    let missing = scratch.join("missing");
    talk(&[&missing]).failed(
        2,
        &format!("error: cannot read {missing}: No such file or directory (os error 2)\n"),
    );
    let there_is_none = |said: Said| {
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        let begin = "error: there is no interface no-such-one; there are ";
        assert!(said.stderr.starts_with(begin), "{said:?}");
    };
    there_is_none(talk(&[&wave]));
    let listen = ["avtp", "listen", "--interface", "no-such-one", "--out", &missing];
    there_is_none(timewire(&listen));
    assert!(!Path::new(&missing).exists());
    for (word, value, why) in [
        ("--stream", "here", "a stream is the talker's address and its number"),
        ("--vlan", "5000:1", "a VLAN is VID:PCP"),
        ("--to", "91:e0", "`91:e0` is no MAC address"),
        ("--transit", "3s", "3s is not within 0ns and 2s"),
        ("--launch", "0us", "0ns is not more than 0ns, up to 2s"),
        ("--frame-rate", "29.97", "such as 25 or 30000/1001"),
        ("--class", "C", "possible values: A, B"),
    ] {
        let said = timewire(&["avtp", "talk", &wave, "--interface", "lo", word, value]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains(why), "{word}: {said:?}");
    }
}

#[test]
fn t3_a_recording_is_not_written_over() {
    let Some(host) = pair() else { return };
    let mine = host.scratch().write("mine.wav", "mine");
    let words = ["avtp", "listen", "--interface", "av0", "--out", "mine.wav", "--for", "1ms"];
    host.timewire_in("listener", &words).failed(
        2,
        "error: cannot create mine.wav: File exists (os error 17)\n  hint: recordings are not \
         written over: choose another name, or `--force`\n",
    );
    assert_eq!(fs::read(mine).unwrap(), b"mine");
}

#[test]
fn t1_a_reservation_is_told_with_the_shaper_of_host_settings() {
    let said = timewire(&[
        "avtp",
        "reserve",
        "--rate",
        "48000",
        "--channels",
        "2",
        "--sample",
        "int24",
        "--streams",
        "2",
        "--port",
        "100Mbit",
    ])
    .done();
    assert_eq!(
        said.stdout,
        "\
class A: interval 125us, transit at most 2ms, VLAN 2, PCP 3
each stream: MaxFrameSize 60 B, MaxIntervalFrames 1, on the wire 102 B
one stream               6.528000 Mbit/s  6.528 %
all 2                   13.056000 Mbit/s  13.056 %
cbs idleslope 13056 sendslope -86944 hicredit 202 locredit -89
in host settings:
  shaper: { credit: { from: reservation, rate: 13056kbit, frame: 102B, port: 100Mbit, \
interference: 1542B } }
"
    );
    let class_b = timewire(&[
        "avtp",
        "reserve",
        "--payload",
        "408B",
        "--class",
        "B",
        "--above-rate",
        "13056kbit",
        "--above-frame",
        "102B",
        "--port",
        "100Mbit",
        "--json",
    ])
    .done()
    .json();
    assert_eq!(class_b["schema"], "timewire.avtp-reserve/1");
    assert_eq!(class_b["idle_slope_bps"], 14_400_000);
    // The class waits for 1542 B of a lower one, and for class A, 102 B and what it gained:
    // (12336 / (100 - 13.056) + 816 / 100) us, in which 14.4 Mbit/s make 270.1 B.
    assert_eq!(class_b["hi_credit_bytes"], 271);
    assert_eq!(class_b["lo_credit_bytes"], -386);
    let scratch = Scratch::new();
    let file = put(&scratch, "a.wav", &music(SampleFormat::Int16, 2, 6));
    let of_file = timewire(&["avtp", "reserve", &file, "--json"]).done().json();
    assert_eq!(of_file["max_frame_size_bytes"], 48);
    timewire(&["avtp", "reserve", "--payload", "1500B", "--port", "90Mbit"]).failed(
        2,
        "error: 98688000 bit/s are reserved of a port of 90Mbit: some of it must be left\n",
    );
}
