// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Proofs that streams do not fit into a link's bins, and what is found when one is changed.

use super::proofs::{CHAIN, Chain, ids, ns, stream, verdict, wrong};
use crate::check::Verdict;
use crate::model::{Certificate, LinkId, PackingCase, Problem, StreamId};

/// Of each 20 us 8 are taken; there is room for two frames of 5 us in each, and there is one more
/// of them in 80 us. The last one is rejected.
fn nine() -> Problem {
    let mut streams = vec![stream(0, 20, 980, 1)];
    streams.extend((1..10).map(|number| stream(number, 80, 605, 1)));
    CHAIN.problem(streams)
}

type Parts = (LinkId, i64, Vec<StreamId>, Vec<Vec<u32>>, Vec<PackingCase>);

fn certificate((link, bin, streams, alike, tree): Parts) -> Certificate {
    Certificate::Packing { link, bin: ns(bin), streams, alike, tree }
}

fn count(least: i64) -> PackingCase {
    PackingCase::Count { least: ns(least) }
}

fn split(stream: u32) -> PackingCase {
    PackingCase::Split { stream }
}

#[test]
fn t0_counts_of_frames_in_bins_are_derived_again() {
    let problem = nine();
    let all: Vec<u32> = (0..10).collect();
    let claim = |change: fn(&mut Parts)| {
        let mut parts = (LinkId(1), 20_000, ids(&all), Vec::new(), vec![count(5_000)]);
        change(&mut parts);
        certificate(parts)
    };
    assert_eq!(verdict(&problem, &claim(|_| ())), Verdict::Proven);
    assert_eq!(verdict(&problem, &claim(|it| it.4 = vec![PackingCase::Sums])), Verdict::Proven);
    wrong(
        &problem,
        &[
            (claim(|it| it.0 = LinkId(0)), "a stream can avoid the link"),
            (claim(|it| it.0 = LinkId(99)), "there is no such link"),
            (claim(|it| it.1 = 40_000), "an interval is no multiple of a bin"),
            (claim(|it| it.1 = 0), "an interval is no multiple of a bin"),
            (claim(|it| it.1 = 10_000), "none repeats with each bin"),
            (claim(|it| it.1 = 1_000), "it is too long"),
            (claim(|it| it.2[1] = StreamId(2)), "a stream is named twice"),
            (claim(|it| it.2[1] = StreamId(77)), "a stream is named that is not admitted"),
            (claim(|it| _ = it.2.pop()), "the refused stream is not named"),
            (claim(|it| _ = it.2.remove(0)), "none repeats with each bin"),
            (claim(|it| _ = it.2.remove(1)), "there is room for all"),
            (claim(|it| it.4 = vec![count(5_001)]), "there is room for all"),
            (claim(|it| it.4.clear()), "a case is left out"),
            (claim(|it| it.4.push(count(5_000))), "there are more cases than there can be"),
            (claim(|it| it.4 = vec![count(5_000); 10_001]), "it is too long"),
            (claim(|it| it.4 = vec![split(10)]), "a stream is not there"),
            (claim(|it| it.4 = vec![split(0)]), "a stream is not there"),
            (claim(|it| it.4 = vec![split(1), count(5_000)]), "a case is left out"),
            (claim(|it| it.3 = vec![vec![0, 1, 2]]), "a bin has another number, or none"),
            (claim(|it| it.3 = vec![vec![0, 1, 2, 2]]), "a bin has another number, or none"),
            (claim(|it| it.3 = vec![vec![0, 1, 2, 4]]), "a bin has another number, or none"),
        ],
    );
    let wide = Chain { wide: true, ..CHAIN };
    wrong(
        &wide.problem(problem.streams().to_vec()),
        &[(claim(|_| ()), "a stream can avoid the link")],
    );
    // With a little more room there are three in a bin.
    let mut streams = problem.streams().to_vec();
    streams[0].length_bytes = 605;
    wrong(&CHAIN.problem(streams), &[(claim(|_| ()), "there is room for all")]);
}

/// Of each 20 us 12 are free. Two streams of 5 us are in every other of four bins; beside them
/// there is room for four of the other five.
#[test]
fn t0_cases_of_bins_are_derived_again() {
    let mut streams = vec![stream(0, 80, 480, 1), stream(1, 20, 980, 1)];
    streams.extend([2, 3].map(|number| stream(number, 40, 605, 1)));
    streams.extend([4, 5, 6, 7].map(|number| stream(number, 80, 605, 1)));
    let problem = CHAIN.problem(streams);
    let all: Vec<u32> = (0..8).collect();
    // The numbers of bins 0 and 2, of 1 and 3, and of the even and the odd ones change places.
    let swaps = vec![vec![2, 1, 0, 3], vec![0, 3, 2, 1], vec![1, 0, 3, 2]];
    let proof = |alike: Vec<Vec<u32>>, tree: Vec<PackingCase>| {
        certificate((LinkId(1), 20_000, ids(&all), alike, tree))
    };
    let tree = vec![split(2), split(3), count(4_000), count(4_000)];
    assert_eq!(verdict(&problem, &proof(swaps.clone(), tree.clone())), Verdict::Proven);
    wrong(
        &problem,
        &[
            // Without other numbers the stream may be first in the second bin as well.
            (proof(Vec::new(), tree.clone()), "a case is left out"),
            (proof(swaps.clone(), tree[..3].to_vec()), "a case is left out"),
            (
                proof(swaps.clone(), [&tree[..], &tree[..1]].concat()),
                "there are more cases than there can be",
            ),
            (proof(swaps.clone(), vec![split(2), split(2)]), "a stream is not there"),
            (proof(swaps.clone(), vec![split(2), count(6_000)]), "there is room for all"),
            (proof(vec![vec![1, 2, 0, 3]], tree.clone()), "bins are not alike"),
        ],
    );
}

/// A message's frames count together at its talker, and one of them elsewhere.
#[test]
fn t0_messages_in_bins_are_as_long_as_they_are_together() {
    let problem = CHAIN.problem(vec![
        stream(0, 20, 980, 1),
        stream(2, 40, 730, 2),
        stream(3, 40, 730, 1),
        stream(4, 40, 855, 1),
    ]);
    let claim = |link| {
        let streams = ids(&[0, 1, 2, 3]);
        certificate((LinkId(link), 20_000, streams, Vec::new(), vec![PackingCase::Sums]))
    };
    assert_eq!(verdict(&problem, &claim(0)), Verdict::Proven);
    wrong(&problem, &[(claim(1), "there is room for all")]);
}
