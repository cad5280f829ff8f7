// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words of `avtp` on the command line as values.

use timewire_avtp::Cadence;
use timewire_avtp::pdu::{CrfType, NominalRate, Pull, SampleFormat, StreamId};
use timewire_base::{WireLen, parse_bytes, parse_span};
use timewire_datapath::avtp::{Expect, Tag, reserve};

/// A stream as it is named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamName {
    /// All 64 bits.
    Full(StreamId),
    /// The number alone: of the sending interface.
    Number(u16),
}

/// `02:00:00:00:00:01/7`, `0x0200000000010007`, or a number.
pub fn stream_name(text: &str) -> Result<StreamName, String> {
    if let Ok(number) = text.parse() {
        return Ok(StreamName::Number(number));
    }
    stream(text).map(StreamName::Full)
}

/// `02:00:00:00:00:01/7` or `0x0200000000010007`.
pub fn stream(text: &str) -> Result<StreamId, String> {
    if let Some(digits) = text.strip_prefix("0x")
        && digits.len() == 16
        && let Ok(bits) = u64::from_str_radix(digits, 16)
    {
        return Ok(StreamId::from_bits(bits));
    }
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(mac, number)| Some((mac.parse().ok()?, number.parse().ok()?)));
    parsed.map(|(talker, number)| StreamId::new(talker, number)).ok_or_else(|| {
        "a stream is the talker's address and its number, such as 02:00:00:00:00:01/7, or 16 \
         digits, such as 0x0200000000010007"
            .to_owned()
    })
}

/// A tag as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanRequest {
    /// None at all.
    Without,
    /// This VLAN, with this priority code point or that of the class.
    With(u16, Option<u8>),
}

impl VlanRequest {
    /// The tag, where the class says what is not said.
    pub fn tag(self, class_pcp: u8) -> Option<Tag> {
        match self {
            VlanRequest::Without => None,
            VlanRequest::With(vid, pcp) => Some(Tag { vid, pcp: pcp.unwrap_or(class_pcp) }),
        }
    }
}

/// `2:3`, `2` or `none`.
pub fn vlan(text: &str) -> Result<VlanRequest, String> {
    if text == "none" {
        return Ok(VlanRequest::Without);
    }
    let (vid, pcp) = match text.split_once(':') {
        Some((vid, pcp)) => (vid, Some(pcp)),
        None => (text, None),
    };
    let vid = vid.parse().ok().filter(|vid| *vid <= 4_094);
    let pcp = pcp.map(|pcp| pcp.parse().ok().filter(|pcp| *pcp <= 7));
    match (vid, pcp) {
        (Some(vid), None) => Ok(VlanRequest::With(vid, None)),
        (Some(vid), Some(Some(pcp))) => Ok(VlanRequest::With(vid, Some(pcp))),
        _ => Err("a VLAN is VID:PCP, such as 2:3 (0 to 4094, 0 to 7), or `none`".to_owned()),
    }
}

/// `25` or `30000/1001`: pictures, or other events, a second.
pub fn cadence(text: &str) -> Result<Cadence, String> {
    let (events, seconds) = text.split_once('/').unwrap_or((text, "1"));
    match (seconds.parse(), events.parse()) {
        (Ok(seconds), Ok(events)) => {
            Cadence::new(seconds, events).map_err(|error| error.to_string())
        }
        _ => Err("a rate is a whole number or a fraction, such as 25 or 30000/1001".to_owned()),
    }
}

/// `lost=0,late=3,margin=1ms`.
pub fn expect(text: &str) -> Result<Expect, String> {
    let mut expect = Expect::default();
    for pair in text.split(',') {
        let wrong =
            || format!("`{pair}` is none of lost=COUNT, late=COUNT, irregular=COUNT, margin=TIME");
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        match key {
            "lost" => expect.lost = value.parse().map_err(|_| wrong())?,
            "late" => expect.late = Some(value.parse().map_err(|_| wrong())?),
            "irregular" => expect.irregular = value.parse().map_err(|_| wrong())?,
            "margin" => {
                expect.margin = Some(parse_span(value).map_err(|error| error.to_string())?);
            }
            _ => return Err(wrong()),
        }
    }
    Ok(expect)
}

/// A length on the link, such as `1542B`.
pub fn wire(text: &str) -> Result<WireLen, String> {
    reserve::on_the_wire(parse_bytes(text).map_err(|error| error.to_string())?)
}

/// `int16`, `int24`, `int32` or `float32`.
pub fn sample(text: &str) -> Result<SampleFormat, String> {
    let found = SampleFormat::ALL.into_iter().find(|one| same(&format!("{one:?}"), text));
    found.ok_or_else(|| "samples are int16, int24, int32 or float32".to_owned())
}

/// `48000`.
pub fn rate(text: &str) -> Result<NominalRate, String> {
    let found = text.parse().ok().and_then(NominalRate::from_hz);
    found.ok_or_else(|| {
        "sampling rates are 8000, 16000, 24000, 32000, 44100, 48000, 88200, 96000, 176400 and \
         192000"
            .to_owned()
    })
}

/// `audio-sample` and the like.
pub fn clock_kind(text: &str) -> Result<CrfType, String> {
    match text {
        "audio-sample" => Ok(CrfType::AudioSample),
        "video-frame" => Ok(CrfType::VideoFrame),
        "video-line" => Ok(CrfType::VideoLine),
        "machine-cycle" => Ok(CrfType::MachineCycle),
        _ => Err("events are audio-sample, video-frame, video-line or machine-cycle".to_owned()),
    }
}

/// `1000/1001` and the like.
pub fn pull(text: &str) -> Result<Pull, String> {
    let written = |pull: &Pull| {
        let (numerator, denominator) = pull.factor();
        if denominator == 1 { numerator.to_string() } else { format!("{numerator}/{denominator}") }
    };
    let found = Pull::all().find(|pull| written(pull) == text);
    found.ok_or_else(|| {
        let all: Vec<_> = Pull::all().map(|pull| written(&pull)).collect();
        format!("factors are {}", all.join(", "))
    })
}

fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

#[cfg(test)]
mod tests {
    use timewire_base::wire::MacAddress;

    use super::*;

    #[test]
    fn t0_words_are_read_and_wrong_ones_are_told_what_would_be_right() {
        let id = StreamId::new(MacAddress([2, 0, 0, 0, 0, 1]), 7);
        assert_eq!(stream_name("02:00:00:00:00:01/7"), Ok(StreamName::Full(id)));
        assert_eq!(stream_name("0x0200000000010007"), Ok(StreamName::Full(id)));
        assert_eq!(stream_name("7"), Ok(StreamName::Number(7)));
        for wrong in ["02:00:00:00:00/7", "0x02", "02:00:00:00:00:01/70000", "7x"] {
            assert!(stream_name(wrong).unwrap_err().contains("02:00:00:00:00:01/7"), "{wrong}");
        }
        assert!(stream("7").is_err());
        assert_eq!(vlan("none").unwrap().tag(3), None);
        assert_eq!(vlan("5:6").unwrap().tag(3), Some(Tag { vid: 5, pcp: 6 }));
        assert_eq!(vlan("5").unwrap().tag(3), Some(Tag { vid: 5, pcp: 3 }));
        for wrong in ["", "4095", "5:8", "5:", "a:1"] {
            assert!(vlan(wrong).unwrap_err().contains("VID:PCP"), "{wrong}");
        }
        assert_eq!(cadence("30000/1001"), Ok(Cadence::new(1_001, 30_000).unwrap()));
        assert_eq!(cadence("25"), Ok(Cadence::of_hz(25).unwrap()));
        assert!(cadence("29.97").is_err() && cadence("0").is_err() && cadence("1/0").is_err());
        let expected = Expect {
            lost: 2,
            late: None,
            irregular: 9,
            margin: Some(timewire_base::Span::from_ms(1)),
        };
        assert_eq!(expect("lost=2,irregular=9,margin=1ms"), Ok(expected));
        for wrong in ["", "lost", "lost=x", "found=1", "margin=1"] {
            assert!(expect(wrong).is_err(), "{wrong}");
        }
        assert_eq!(wire("1542B").map(WireLen::get), Ok(1_542));
        assert!(wire("83B").is_err());
        assert_eq!(sample("INT24"), Ok(SampleFormat::Int24));
        assert_eq!(pull("1000/1001"), Ok(Pull::Down1001));
        assert_eq!(pull("1"), Ok(Pull::One));
        assert!(pull("2").unwrap_err().contains("1/8"));
        assert!(clock_kind("user").is_err() && rate("44000").is_err());
    }
}
