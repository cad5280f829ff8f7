// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of latencies as what streams are held against in tables.

use timewire_capture::judge::{Bound, LimitInput, Metric, Statistic};
use timewire_capture::summary::{CaseSummary, StreamPromise, StreamSummary};

/// Gives streams to which nothing is promised the limits of their longest latency.
pub(super) fn give(cases: &mut [CaseSummary], limits: &[LimitInput]) {
    for case in cases {
        let of_case = limits.iter().filter(|it| {
            it.metric == Metric::Latency(Statistic::Max)
                && (&it.scenario, &it.case, &it.load) == (&case.scenario, &case.case, &case.load)
        });
        for limit in of_case {
            let Bound::Time(limit_ns) = limit.bound else { continue };
            let limit_ns = limit_ns.as_ns();
            let is_own = |it: &&mut StreamSummary| limit.stream.as_ref() == Some(&it.name);
            for stream in case.streams.iter_mut().filter(is_own) {
                let by = "limits".to_owned();
                match &mut stream.promise {
                    Some(promise) => promise.limit_ns = promise.limit_ns.min(limit_ns),
                    none => {
                        *none = Some(StreamPromise { by, latency_ns: None, limit_ns });
                    }
                }
            }
        }
    }
}
