// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to a running MAC and to groups, and their answers; what was read is written and reads
//! as itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::from_slice;
use timewire_datapath::control::{Request, Response};
use timewire_datapath::groups::GroupRequest;

fuzz_target!(|data: &[u8]| {
    if let Ok(request) = from_slice::<Request>(data) {
        let text = serde_json::to_vec(&request).expect("a request is written");
        assert_eq!(from_slice::<Request>(&text).expect("and read"), request);
    }
    if let Ok(response) = from_slice::<Response>(data) {
        let text = serde_json::to_vec(&response).expect("an answer is written");
        assert_eq!(from_slice::<Response>(&text).expect("and read"), response);
    }
    if let Ok(request) = from_slice::<GroupRequest>(data) {
        let _ = serde_json::to_vec(&request).expect("a request is written");
    }
});
