// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cbs`, the credit-based shaper of IEEE 802.1Qav: a class sends at its reserved rate and no
//! faster, because sending costs credit.

use std::fmt;

use serde::Serialize;

use super::QdiscError;
use super::words::{Words, begins};

/// The settings of `cbs`, in the units of `tc`. Linux takes any numbers of 32 bits, also such that
/// shape nothing: see [`super::Doubt`].
///
/// **Source**: `linux v6.12 net/sched/sch_cbs.c:cbs_change`,
/// `include/uapi/linux/pkt_sched.h:tc_cbs_qopt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cbs {
    /// How fast credit grows while a frame waits, and so the reserved rate.
    #[doc(alias = "idleSlope")]
    pub idle_slope_kbit: i32,
    /// How fast credit changes while a frame is sent: the reserved rate less the port's.
    #[doc(alias = "sendSlope")]
    pub send_slope_kbit: i32,
    /// The most credit.
    #[doc(alias = "hiCredit")]
    pub hi_credit_bytes: i32,
    /// The least credit.
    #[doc(alias = "loCredit")]
    pub lo_credit_bytes: i32,
    /// The device does the shaping.
    pub offload: bool,
}

impl Cbs {
    /// The words after `cbs`.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Cbs, QdiscError> {
        let mut cbs = Cbs::default();
        while let Some(word) = words.take() {
            if begins(word, "offload") {
                cbs.offload = words.any_base("offload", 0, 1)? == 1;
            } else if begins(word, "hicredit") {
                cbs.hi_credit_bytes = number(words, "hicredit")?;
            } else if begins(word, "locredit") {
                cbs.lo_credit_bytes = number(words, "locredit")?;
            } else if begins(word, "sendslope") {
                cbs.send_slope_kbit = number(words, "sendslope")?;
            } else if begins(word, "idleslope") {
                cbs.idle_slope_kbit = number(words, "idleslope")?;
            } else {
                return Err(QdiscError::UnknownWord {
                    word: word.to_owned(),
                    to: "cbs",
                    takes: "idleslope, sendslope, hicredit, locredit, offload",
                });
            }
        }
        Ok(cbs)
    }
}

fn number(words: &mut Words<'_>, key: &'static str) -> Result<i32, QdiscError> {
    let number = words.any_base(key, i64::from(i32::MIN), i64::from(i32::MAX))?;
    Ok(i32::try_from(number).expect("invariant: read as a number of 32 bits"))
}

/// Prints `cbs idleslope 20000 sendslope -980000 hicredit 30 locredit -1470`.
impl fmt::Display for Cbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cbs idleslope {} sendslope {} hicredit {} locredit {}",
            self.idle_slope_kbit, self.send_slope_kbit, self.hi_credit_bytes, self.lo_credit_bytes
        )?;
        if self.offload { f.write_str(" offload 1") } else { Ok(()) }
    }
}
