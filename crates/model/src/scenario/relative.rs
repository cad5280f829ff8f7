// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Of which cases and loads a limit is, and limits that look at two of them.

use super::model::{Metric, ReferenceRule};
use super::network::{NetLimit, NetworkFile};
use super::network_cases::NetworkCase;
use super::several::Several;
use super::value::{AtMost, Name};

/// A limit of a value divided by that of another case or load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelativeLimit {
    /// Its name; where its rule stands for several, with the stream, case and load behind it.
    pub id: String,
    /// What is judged.
    pub metric: Metric,
    /// The stream.
    pub stream: Name,
    /// The case.
    pub case: String,
    /// The load.
    pub load: String,
    /// The case with what the value is divided by.
    pub to_case: String,
    /// Its load.
    pub to_load: String,
    /// The largest good value.
    pub at_most: AtMost,
}

impl NetLimit {
    /// Whether it is about this case and load, or about all.
    pub(super) fn is_about(&self, case: &str, load: &str) -> bool {
        let named = |names: &Option<Several<Name>>, name: &str| {
            names.as_ref().is_none_or(|all| all.all().iter().any(|it| it.as_str() == name))
        };
        named(&self.case, case) && named(&self.load, load)
    }

    /// Whether it is judged somewhere.
    pub(super) fn is_judged(&self, stream: &Name, cases: &[NetworkCase]) -> bool {
        match &self.relative_to {
            Some(to) => !self.relative(to, stream, cases).is_empty(),
            None => cases.iter().any(|it| self.is_about(&it.of, &it.load) && it.has(stream)),
        }
    }

    /// Each network that it judges relative to another: that, and the case and load of the other.
    fn relative<'a>(
        &self,
        to: &'a ReferenceRule,
        stream: &Name,
        cases: &'a [NetworkCase],
    ) -> Vec<(&'a NetworkCase, &'a str, &'a str)> {
        let own = cases.iter().filter(|it| self.is_about(&it.of, &it.load) && it.has(stream));
        let with_other = own.map(|it| {
            let case = to.case.as_ref().map_or(it.of.as_str(), Name::as_str);
            (it, case, to.load.as_ref().map_or(it.load.as_str(), Name::as_str))
        });
        // A value relative to itself says nothing.
        let other = |own: &NetworkCase, case: &str, load: &str| {
            let mut all = cases.iter().filter(|it| it.variant == own.variant);
            all.find(|it| it.of == case && it.load == load && it.has(stream))
        };
        with_other
            .filter(|(it, case, load)| (it.of.as_str(), it.load.as_str()) != (case, load))
            .filter_map(|(it, case, load)| Some((it, other(it, case, load)?.case.as_str(), load)))
            .collect()
    }
}

/// The limits that look at two networks: of each rule one for each of its streams, cases and loads,
/// where there are both. `rules` has those of each case, as its values make them.
pub(super) fn relative_limits(
    file: &NetworkFile,
    cases: &[NetworkCase],
    rules: &[Vec<NetLimit>],
) -> Vec<RelativeLimit> {
    let mut all = Vec::new();
    for (i, first) in file.limits.iter().enumerate().filter(|(_, it)| it.relative_to.is_some()) {
        let mut own = Vec::new();
        for number in 0..first.streams().len() {
            for (case, rules) in cases.iter().zip(rules) {
                let Some(limit) = rules.get(i) else { continue };
                let (Some(to), Some(stream)) = (&limit.relative_to, limit.streams().get(number))
                else {
                    continue;
                };
                let of_case = limit.relative(to, stream, cases).into_iter();
                let of_case = of_case.filter(|(it, ..)| std::ptr::eq(*it, case));
                own.extend(of_case.map(|it| (limit, stream, it)));
            }
        }
        let several = own.len() > 1;
        all.extend(own.into_iter().map(|(limit, stream, (it, to_case, to_load))| RelativeLimit {
            id: match several {
                true => format!("{}-{stream}-{}-{}", limit.id, it.case, it.load),
                false => limit.id.to_string(),
            },
            metric: limit.metric,
            stream: stream.clone(),
            case: it.case.clone(),
            load: it.load.clone(),
            to_case: to_case.to_owned(),
            to_load: to_load.to_owned(),
            at_most: limit.at_most,
        }));
    }
    all
}
