// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flows through a feed-forward network of servers, bounded in the three classic ways: per server
//! (total flow analysis, TFA), per flow with the others' traffic taken off each server (separate
//! flow analysis, SFA), and with the others' bursts paid once (pay multiplexing only once, PMOO).
//!
//! **Source**: Schmitt, Zdarsky, Fidler: Delay Bounds under Arbitrary Multiplexing (INFOCOM 2008);
//! Bouillard, Boyer, Le Corronc: Deterministic Network Calculus, chapter 10.

use std::collections::{BTreeMap, BTreeSet};

use super::{Arrival, CalculusError, Ratio, Service};

/// In which order a server serves its flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    Fifo,
    /// Any order between flows; each flow stays in order.
    Arbitrary,
}

/// Whether the flow that is bounded counts where the others' bursts are bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It does: right for any order.
    Counted,
    /// It does not: right when it can be served last everywhere ([`Order::Arbitrary`]). Published
    /// tools do this for [`Order::Fifo`] as well, which is here to compare with them.
    LeftOut,
}

/// A flow: its traffic, and the servers on its path in order.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What its source sends.
    pub arrival: Arrival,
    /// Indices of servers.
    pub path: Vec<usize>,
}

/// What is proven. `None`: no bound exists, or this method finds none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From end to end.
    pub delay: Option<Ratio>,
    /// With TFA the most in any one server of the path, of all its flows; else the flow's own.
    pub backlog: Option<Ratio>,
}

/// Servers and flows without a circle of dependence.
#[derive(Clone, Debug)]
pub struct Servers {
    servers: Vec<Service>,
    flows: Vec<Flow>,
    at: Vec<BTreeSet<usize>>,
}

type Set = BTreeSet<usize>;

/// What the bound of a set of flows at a server was; `None` without bound.
type Known = BTreeMap<(usize, Set), Option<Arrival>>;

struct Search<'a> {
    net: &'a Servers,
    order: Order,
    left_out: Option<usize>,
    known: Known,
}

impl Servers {
    /// **Errors**: a path that is empty, has an unknown server or one twice; servers whose flows
    /// make them depend on each other in a circle.
    pub fn new(servers: Vec<Service>, flows: Vec<Flow>) -> Result<Servers, CalculusError> {
        let mut at = vec![Set::new(); servers.len()];
        for (index, flow) in flows.iter().enumerate() {
            if flow.path.is_empty() {
                return Err(CalculusError::Path { flow: index, server: 0 });
            }
            for &server in &flow.path {
                let known = at.get_mut(server).is_some_and(|flows| flows.insert(index));
                if !known {
                    return Err(CalculusError::Path { flow: index, server });
                }
            }
        }
        let net = Servers { servers, flows, at };
        match net.circle() {
            Some(servers) => Err(CalculusError::Cycle { servers }),
            None => Ok(net),
        }
    }

    /// Those servers that nothing orders.
    fn circle(&self) -> Option<Vec<usize>> {
        let mut edges: BTreeSet<(usize, usize)> = BTreeSet::new();
        for flow in &self.flows {
            edges.extend(flow.path.windows(2).map(|pair| (pair[0], pair[1])));
        }
        let mut open: Set = (0..self.servers.len()).collect();
        loop {
            let before = open.len();
            let fed: Set = edges.iter().map(|(_, to)| *to).collect();
            open.retain(|server| fed.contains(server));
            edges.retain(|(from, _)| open.contains(from));
            if open.is_empty() {
                return None;
            }
            if open.len() == before {
                return Some(open.into_iter().collect());
            }
        }
    }

    fn search(&self, order: Order, left_out: Option<usize>) -> Search<'_> {
        Search { net: self, order, left_out, known: Known::new() }
    }

    /// Total flow analysis: the sum of each server's bound for all that goes through it.
    ///
    /// **Errors**: numbers beyond 127 bits.
    ///
    /// **Panics** when there is no such flow.
    pub fn total(&self, flow: usize, order: Order) -> Result<Bounds, CalculusError> {
        let mut search = self.search(order, None);
        let (mut delay, mut backlog) = (Some(Ratio::ZERO), Some(Ratio::ZERO));
        for &server in &self.flows[flow].path {
            let Some(arrival) = search.arrival(&self.at[server], server)? else {
                return Ok(Bounds { delay: None, backlog: None });
            };
            let service = &self.servers[server];
            let here = match order {
                Order::Fifo => arrival.delay(service)?,
                Order::Arbitrary => arrival.busy(service)?,
            };
            delay = sum(delay, here)?;
            backlog = match (backlog, arrival.backlog(service)?) {
                (Some(a), Some(b)) => Some(a.max(b)),
                _ => None,
            };
        }
        Ok(Bounds { delay, backlog })
    }

    /// Separate flow analysis: what the others leave at each server, one after the other.
    ///
    /// **Errors**: numbers beyond 127 bits.
    ///
    /// **Panics** when there is no such flow.
    pub fn separate(
        &self,
        flow: usize,
        order: Order,
        observed: Observed,
    ) -> Result<Bounds, CalculusError> {
        let left_out = (observed == Observed::LeftOut).then_some(flow);
        let mut search = self.search(order, left_out);
        let mut whole: Option<Service> = None;
        for &server in &self.flows[flow].path {
            let mut others = self.at[server].clone();
            others.remove(&flow);
            let Some(left) = search.left(server, &others)? else {
                return Ok(Bounds { delay: None, backlog: None });
            };
            whole = Some(match whole {
                Some(before) => before.then(&left)?,
                None => left,
            });
        }
        let whole = whole.ok_or(CalculusError::Empty)?;
        let arrival = &self.flows[flow].arrival;
        Ok(Bounds { delay: arrival.delay(&whole)?, backlog: arrival.backlog(&whole)? })
    }

    /// Pay multiplexing only once: the others' bursts count once on a stretch that they share with
    /// the flow. For arbitrary order, and so for any.
    ///
    /// **Errors**: more than one bucket of a flow or guarantee of a server; numbers beyond
    /// 127 bits.
    ///
    /// **Panics** when there is no such flow.
    pub fn multiplexed_once(&self, flow: usize) -> Result<Bounds, CalculusError> {
        let path = &self.flows[flow].path;
        let mut search = self.search(Order::Arbitrary, Some(flow));
        let (mut rate, mut latency) = (None::<Ratio>, Ratio::ZERO);
        let mut bursts = Ratio::ZERO;
        for &server in path {
            let (served, wait) = single(&self.servers[server].guarantees()?)?;
            let mut left = served;
            for &other in self.at[server].iter().filter(|other| **other != flow) {
                let arrival = &self.flows[other].arrival;
                let (other_rate, _) = single(&arrival.limits())?;
                left = left.minus(other_rate)?;
                bursts = bursts.plus(other_rate.times(wait)?)?;
            }
            latency = latency.plus(wait)?;
            rate = Some(rate.map_or(left, |rate| rate.min(left)));
        }
        for (server, joined) in self.joins(flow) {
            match search.arrival(&joined, server)? {
                Some(arrival) => bursts = bursts.plus(single(&arrival.limits())?.1)?,
                None => return Ok(Bounds { delay: None, backlog: None }),
            }
        }
        let rate = rate.ok_or(CalculusError::Empty)?;
        if rate <= Ratio::ZERO {
            return Ok(Bounds { delay: None, backlog: None });
        }
        let whole = Service::rate_latency(rate, latency.plus(bursts.over(rate)?)?)?;
        let arrival = &self.flows[flow].arrival;
        Ok(Bounds { delay: arrival.delay(&whole)?, backlog: arrival.backlog(&whole)? })
    }

    /// Where others join the flow's path, and which: those that come from the same server and share
    /// the same stretch are one set.
    fn joins(&self, flow: usize) -> Vec<(usize, Set)> {
        let path = &self.flows[flow].path;
        let mut sets: BTreeMap<(usize, usize, Option<usize>), Set> = BTreeMap::new();
        for (index, other) in self.flows.iter().enumerate().filter(|(index, _)| *index != flow) {
            let mut at = 0;
            while at < other.path.len() {
                let Some(start) = path.iter().position(|server| *server == other.path[at]) else {
                    at += 1;
                    continue;
                };
                let shared = path[start..].iter().zip(&other.path[at..]);
                let length = shared.take_while(|(mine, its)| mine == its).count();
                let from = at.checked_sub(1).map(|before| other.path[before]);
                sets.entry((start, length, from)).or_default().insert(index);
                at += length;
            }
        }
        sets.into_iter().map(|((start, _, _), set)| (path[start], set)).collect()
    }

    /// The server before `server` on the flow's path.
    fn before(&self, flow: usize, server: usize) -> Option<usize> {
        let path = &self.flows[flow].path;
        let at = path.iter().position(|other| *other == server)?;
        at.checked_sub(1).map(|before| path[before])
    }
}

impl Search<'_> {
    /// What of these flows can arrive at the server; `None`: without bound.
    fn arrival(&mut self, flows: &Set, server: usize) -> Result<Option<Arrival>, CalculusError> {
        let key = (server, flows.clone());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let bound = self.arrival_from_before(flows, server)?;
        self.known.insert(key, bound.clone());
        Ok(bound)
    }

    fn arrival_from_before(
        &mut self,
        flows: &Set,
        server: usize,
    ) -> Result<Option<Arrival>, CalculusError> {
        let mut groups: BTreeMap<Option<usize>, Set> = BTreeMap::new();
        for &flow in flows {
            groups.entry(self.net.before(flow, server)).or_default().insert(flow);
        }
        let mut whole = Arrival::nothing();
        for (from, group) in groups {
            let Some(from) = from else {
                for flow in group {
                    whole = whole.plus(&self.net.flows[flow].arrival)?;
                }
                continue;
            };
            let others = self.net.at[from].difference(&group).copied().collect();
            let (arrival, left) = (self.arrival(&group, from)?, self.left(from, &others)?);
            let (Some(arrival), Some(left)) = (arrival, left) else { return Ok(None) };
            let Some(out) = arrival.after(&left)? else { return Ok(None) };
            whole = whole.plus(&out)?;
        }
        Ok(Some(whole))
    }

    /// What these others leave of the server; `None`: they are without bound.
    fn left(&mut self, server: usize, others: &Set) -> Result<Option<Service>, CalculusError> {
        let mut others = others.clone();
        if let Some(flow) = self.left_out {
            others.remove(&flow);
        }
        let service = &self.net.servers[server];
        if others.is_empty() {
            return Ok(Some(service.clone()));
        }
        let Some(arrival) = self.arrival(&others, server)? else { return Ok(None) };
        Ok(Some(match self.order {
            Order::Fifo => service.left_in_order(&arrival)?,
            Order::Arbitrary => service.left_by(&arrival)?,
        }))
    }
}

fn sum(a: Option<Ratio>, b: Option<Ratio>) -> Result<Option<Ratio>, CalculusError> {
    match (a, b) {
        (Some(a), Some(b)) => Ok(Some(a.plus(b)?)),
        _ => Ok(None),
    }
}

fn single(lines: &[(Ratio, Ratio)]) -> Result<(Ratio, Ratio), CalculusError> {
    match lines {
        [line] => Ok(*line),
        _ => Err(CalculusError::ManyLines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(num: i128, den: i128) -> Option<Ratio> {
        Some(Ratio::new(num, den).unwrap())
    }

    fn service(rate: i128, latency: i128) -> Service {
        Service::rate_latency(Ratio::whole(rate), Ratio::whole(latency)).unwrap()
    }

    /// Twice the rate and burst, so that halves can be had.
    fn flow(rate: i128, burst: i128, path: &[usize]) -> Flow {
        let half = |twice| Ratio::new(twice, 2).unwrap();
        let arrival = Arrival::bucket(half(rate), half(burst)).unwrap();
        Flow { arrival, path: path.to_vec() }
    }

    fn tandem(servers: &[(i128, i128)], flows: usize, twice: (i128, i128)) -> Servers {
        let services = servers.iter().map(|&(rate, latency)| service(rate, latency)).collect();
        let path: Vec<usize> = (0..servers.len()).collect();
        Servers::new(services, vec![flow(twice.0, twice.1, &path); flows]).unwrap()
    }

    struct Row {
        net: Servers,
        fifo: Option<Ratio>,
        arbitrary: Option<Ratio>,
        backlog: Option<Ratio>,
        separate: (Option<Ratio>, Option<Ratio>),
        once: Option<Ratio>,
    }

    /// The published functional tests of a calculator (DNC), to the last digit.
    #[test]
    fn t0_published_tandems() {
        let rows = [
            Row {
                net: tandem(&[(10, 10)], 1, (10, 50)),
                fifo: ratio(25, 2),
                arbitrary: ratio(25, 1),
                backlog: ratio(75, 1),
                separate: (ratio(25, 2), ratio(25, 2)),
                once: ratio(25, 2),
            },
            Row {
                net: tandem(&[(10, 10)], 2, (10, 50)),
                fifo: ratio(15, 1),
                arbitrary: None,
                backlog: ratio(150, 1),
                separate: (ratio(30, 1), ratio(35, 2)),
                once: ratio(30, 1),
            },
            Row {
                net: tandem(&[(10, 10), (10, 10)], 1, (10, 50)),
                fifo: ratio(30, 1),
                arbitrary: ratio(60, 1),
                backlog: ratio(125, 1),
                separate: (ratio(45, 2), ratio(45, 2)),
                once: ratio(45, 2),
            },
            Row {
                net: tandem(&[(10, 10), (10, 10)], 2, (10, 50)),
                fifo: ratio(40, 1),
                arbitrary: None,
                backlog: ratio(250, 1),
                separate: (ratio(65, 1), ratio(35, 1)),
                once: ratio(50, 1),
            },
            Row {
                net: tandem(&[(10, 10), (6, 6)], 2, (5, 25)),
                fifo: ratio(31, 1),
                arbitrary: ratio(136, 1),
                backlog: ratio(105, 1),
                separate: (ratio(277, 7), ratio(379, 14)),
                once: ratio(242, 7),
            },
            Row {
                net: tandem(&[(20, 20), (20, 20), (20, 20)], 2, (10, 50)),
                fifo: ratio(195, 2),
                arbitrary: ratio(195, 1),
                backlog: ratio(650, 1),
                separate: (ratio(320, 3), ratio(965, 12)),
                once: ratio(250, 3),
            },
        ];
        for (index, row) in rows.into_iter().enumerate() {
            let fifo = row.net.total(0, Order::Fifo).unwrap();
            assert_eq!((fifo.delay, fifo.backlog), (row.fifo, row.backlog), "row {index}");
            let total = row.net.total(0, Order::Arbitrary).unwrap();
            assert_eq!((total.delay, total.backlog), (row.arbitrary, row.backlog), "row {index}");
            let separate = |order| row.net.separate(0, order, Observed::LeftOut).unwrap().delay;
            let both = (separate(Order::Arbitrary), separate(Order::Fifo));
            assert_eq!(both, row.separate, "row {index}");
            assert_eq!(row.net.multiplexed_once(0).unwrap().delay, row.once, "row {index}");
        }
    }

    #[test]
    fn t0_published_cross_flow() {
        let services = vec![service(20, 20), service(20, 20), service(20, 20)];
        let flows = vec![flow(10, 50, &[0, 2]), flow(10, 50, &[0, 1, 2])];
        let net = Servers::new(services, flows).unwrap();
        let bounds = [0, 1].map(|flow| net.total(flow, Order::Fifo).unwrap());
        assert_eq!(bounds[0].delay, ratio(485, 8));
        assert_eq!(bounds[1].delay, ratio(1395, 16));
        assert_eq!(bounds[0].backlog, ratio(1125, 2));
    }

    #[test]
    fn t0_the_observed_flow_counts_when_asked() {
        // The other's burst after the first server is 25 + 5 * 12.5 with the flow before it.
        let net = tandem(&[(10, 10), (10, 10)], 2, (10, 50));
        let counted = net.separate(0, Order::Fifo, Observed::Counted).unwrap();
        assert_eq!(counted.delay, ratio(145, 4));
    }

    #[test]
    fn t0_circles_and_wrong_paths_are_told() {
        let services = vec![service(20, 20), service(20, 20), service(20, 20)];
        let circle = vec![flow(10, 50, &[0, 1]), flow(10, 50, &[1, 0]), flow(10, 50, &[2])];
        let error = Servers::new(services.clone(), circle).unwrap_err();
        assert_eq!(error, CalculusError::Cycle { servers: vec![0, 1] });
        let twice = Servers::new(services.clone(), vec![flow(10, 50, &[0, 0])]).unwrap_err();
        assert_eq!(twice, CalculusError::Path { flow: 0, server: 0 });
        let unknown = Servers::new(services, vec![flow(10, 50, &[7])]).unwrap_err();
        assert_eq!(unknown, CalculusError::Path { flow: 0, server: 7 });
    }
}
