// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in frames: MAC addresses and headers.

mod address;
mod frame;

pub use address::{MacAddress, MacAddressError};
pub use frame::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN, Frame, IpHeader,
    MAX_VLAN_TAGS, Ports, Udp, is_tag,
};
