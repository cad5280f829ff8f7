// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Management messages: values to bytes and back, any bytes, and one that `pmc` was seen to send.

use proptest::prelude::*;
use timewire_host::clock::dataset::{ClockIdentity, DataSet, DataSetId, PortIdentity};
use timewire_host::clock::management::{Action, Body, ErrorId, Management, MessageError};

fn port() -> impl Strategy<Value = PortIdentity> {
    (any::<[u8; 8]>(), any::<u16>())
        .prop_map(|(clock, port)| PortIdentity { clock: ClockIdentity(clock), port })
}

/// Any values: what is reserved, and more than a bit of a truth value, is not kept.
fn values() -> impl Strategy<Value = Body> {
    let bytes = proptest::collection::vec(any::<u8>(), 300);
    (0..DataSetId::ALL.len(), bytes).prop_map(|(which, bytes)| {
        let id = DataSetId::ALL[which];
        Body::Values(Box::new(DataSet::parse(id, &bytes[..id.length()]).expect("the right length")))
    })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        (0..DataSetId::ALL.len()).prop_map(|which| Body::Question(DataSetId::ALL[which])),
        values(),
        (any::<u16>(), proptest::collection::vec(any::<u8>(), 0..40))
            .prop_filter("no known number", |(id, _)| DataSetId::of_number(*id).is_none())
            .prop_map(|(id, bytes)| Body::Other { id, bytes }),
        (any::<u16>(), any::<u16>())
            .prop_map(|(id, error)| Body::Refused { id, error: ErrorId(error) }),
    ]
}

fn message() -> impl Strategy<Value = Management> {
    let actions =
        [Action::Get, Action::Set, Action::Response, Action::Command, Action::Acknowledge];
    let header = (0_u8..16, any::<u8>(), any::<u16>(), any::<u8>(), 0..actions.len());
    (header, port(), port(), body()).prop_map(move |(header, source, target, body)| Management {
        transport_specific: header.0,
        domain: header.1,
        source,
        sequence: header.2,
        target,
        boundary_hops: header.3,
        action: actions[header.4],
        body,
    })
}

proptest! {
    #[test]
    fn t0_what_is_written_is_read(message in message()) {
        let bytes = message.emit();
        prop_assert_eq!(usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), bytes.len());
        prop_assert_eq!(Management::parse(&bytes), Ok(message.clone()));
        // Bytes after a message are somebody else's.
        let mut longer = bytes.clone();
        longer.extend([1, 2, 3]);
        prop_assert_eq!(Management::parse(&longer), Ok(message));
        // Cut anywhere, it is none.
        for end in 0..bytes.len() {
            prop_assert!(Management::parse(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn t0_any_bytes_are_read_or_refused_and_what_is_read_is_kept(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        if let Ok(message) = Management::parse(&bytes) {
            prop_assert_eq!(Management::parse(&message.emit()), Ok(message));
        }
    }

    #[test]
    fn t0_a_message_with_any_bytes_changed_is_read_or_refused(
        message in message(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = message.emit();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(message) = Management::parse(&bytes) {
            prop_assert_eq!(Management::parse(&message.emit()), Ok(message));
        }
    }
}

/// `pmc` of linuxptp 3.1.1 sends the bytes of the data set with its question, all zero.
#[test]
fn t0_a_data_set_of_the_wrong_length_is_named() {
    let mut question = Management {
        transport_specific: 1,
        domain: 0,
        source: PortIdentity::default(),
        sequence: 1,
        target: PortIdentity { clock: ClockIdentity([0xFF; 8]), port: 0xFFFF },
        boundary_hops: 0,
        action: Action::Get,
        body: Body::Other { id: 0xC100, bytes: vec![0; 50] },
    }
    .emit();
    let number = 48 + 4;
    question[number..number + 2].copy_from_slice(&0xC000_u16.to_be_bytes());
    assert!(matches!(Management::parse(&question).unwrap().body, Body::Values(_)));
    question[number..number + 2].copy_from_slice(&0x2001_u16.to_be_bytes());
    let error = Management::parse(&question).unwrap_err();
    assert_eq!(error, MessageError::Length { id: DataSetId::Current, found: 50 });
    assert_eq!(error.to_string(), "CURRENT_DATA_SET has 50 bytes where it should have 18");
    let mut other = question.clone();
    other[0] = 0x1B;
    assert_eq!(Management::parse(&other), Err(MessageError::NotManagement));
}
