// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Decides by cases whether a few starts can be chosen: how far each may be after each other is
//! bounded from both sides, bounds that follow from others are drawn, and where a forbidden span
//! lies between two bounds there is a case before it and one after it (disjunctive temporal
//! problems, after Stergiou and Koubarakis, 2000).

use super::ring::Ring;

/// How far apart two starts may be.
#[derive(Clone, Debug)]
pub struct Apart {
    pub one: usize,
    pub other: usize,
    pub ring: Ring,
}

/// What is to be decided. Start 0 is the origin.
#[derive(Clone, Debug)]
pub struct Question {
    /// How many starts there are, with the origin.
    pub starts: usize,
    /// One start after another: at least and at most. Each start is bounded to the origin.
    pub bounds: Vec<(usize, usize, i64, i64)>,
    pub apart: Vec<Apart>,
}

/// Where a case begins and another ends: `other` is at most so long after `one`, or longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub one: usize,
    pub other: usize,
    pub most: i64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A start for each, the origin's first.
    Starts(Vec<i64>),
    /// There are none: cases in order, each split followed by all that it leads to, first of what
    /// is before it; `None` ends a case that contradicts itself.
    None(Vec<Option<Split>>),
    /// It would take more steps, or more cases than a proof may have.
    Open,
}

/// The most entries of a proof, and how deep cases may lie in each other.
const MAX_CASES: usize = 4_000;
const DEEPEST: usize = 200;

/// Decides, or gives up after so many steps, which it takes from them.
pub fn decide(question: &Question, steps: &mut u64) -> Answer {
    let spans = question.apart.iter().map(|apart| 1 + apart.ring.spans() / 4).sum::<usize>();
    let price = u64::try_from(spans).unwrap_or(u64::MAX);
    let mut search = Search { question, price, steps, proof: Vec::new(), starts: None };
    let mut bounds = Bounds { count: question.starts, most: Vec::new() };
    bounds.most = vec![i64::MAX / 8; question.starts * question.starts];
    for start in 0..question.starts {
        bounds.most[start * question.starts + start] = 0;
    }
    let holds = question.apart.iter().all(|apart| !apart.ring.is_shut())
        && question.bounds.iter().all(|&(one, other, least, most)| {
            bounds.lower(one, other, most) && bounds.lower(other, one, -least)
        });
    let done = match holds {
        false => search.close(),
        true => search.case(bounds, 0),
    };
    match (done, search.starts) {
        (_, Some(starts)) => Answer::Starts(starts),
        (Some(()), None) => Answer::None(search.proof),
        (None, None) => Answer::Open,
    }
}

/// The most that each start may be after each other one, closed under sums.
#[derive(Clone)]
struct Bounds {
    count: usize,
    most: Vec<i64>,
}

impl Bounds {
    fn most(&self, one: usize, other: usize) -> i64 {
        self.most[one * self.count + other]
    }

    /// Bounds one distance, and all that follow; whether there is no contradiction.
    fn lower(&mut self, one: usize, other: usize, most: i64) -> bool {
        if most >= self.most(one, other) {
            return true;
        }
        if most + self.most(other, one) < 0 {
            return false;
        }
        for from in 0..self.count {
            let by = self.most(from, one) + most;
            for to in 0..self.count {
                let sum = by + self.most[other * self.count + to];
                let old = &mut self.most[from * self.count + to];
                *old = sum.min(*old);
            }
        }
        true
    }
}

struct Search<'a> {
    question: &'a Question,
    /// Steps that looking for a split takes.
    price: u64,
    steps: &'a mut u64,
    proof: Vec<Option<Split>>,
    starts: Option<Vec<i64>>,
}

impl Search<'_> {
    /// `None`: it is not known, or there are starts.
    fn case(&mut self, mut bounds: Bounds, depth: usize) -> Option<()> {
        if !self.follow(&mut bounds)? {
            return self.close();
        }
        *self.steps = self.steps.checked_sub(self.price)?;
        let Some(split) = self.split(&bounds) else {
            let earliest = (0..bounds.count).map(|start| -bounds.most(start, 0));
            self.starts = Some(earliest.collect());
            return None;
        };
        if depth == DEEPEST || self.proof.len() >= MAX_CASES {
            return None;
        }
        self.proof.push(Some(split));
        let mut before = bounds.clone();
        match before.lower(split.one, split.other, split.most) {
            true => self.case(before, depth + 1)?,
            false => self.close()?,
        }
        match bounds.lower(split.other, split.one, -split.most - 1) {
            true => self.case(bounds, depth + 1),
            false => self.close(),
        }
    }

    fn close(&mut self) -> Option<()> {
        self.proof.push(None);
        Some(())
    }

    /// Moves bounds off what is forbidden until none moves any more; whether they agree. `None`:
    /// there are no steps left.
    fn follow(&mut self, bounds: &mut Bounds) -> Option<bool> {
        let price = 1 + u64::try_from(bounds.count * bounds.count / 64).unwrap_or(0);
        let (mut calm, mut next) = (0, 0);
        while calm < self.question.apart.len() {
            let Apart { one, other, ring } = &self.question.apart[next];
            let (least, most) = (-bounds.most(*other, *one), bounds.most(*one, *other));
            let (after, before) = (ring.at_least(least), ring.at_most(most));
            calm += 1;
            *self.steps = self.steps.checked_sub(1)?;
            if (after, before) != (least, most) {
                let holds =
                    bounds.lower(*other, *one, -after) && bounds.lower(*one, *other, before);
                *self.steps = self.steps.checked_sub(price)?;
                if !holds {
                    return Some(false);
                }
                calm = 0;
            }
            next = if next + 1 == self.question.apart.len() { 0 } else { next + 1 };
        }
        Some(true)
    }

    /// Where the longest forbidden span lies between bounds, measured by how far they are apart.
    fn split(&self, bounds: &Bounds) -> Option<Split> {
        let mut best: Option<(i128, Split)> = None;
        for Apart { one, other, ring } in &self.question.apart {
            let (least, most) = (-bounds.most(*other, *one), bounds.most(*one, *other));
            let Some((start, end)) = ring.between(least, most) else { continue };
            let worth = i128::from(end - start) * 1_000_000 / i128::from(most - least);
            if best.is_none_or(|(best, _)| worth > best) {
                best = Some((worth, Split { one: *one, other: *other, most: start - 1 }));
            }
        }
        best.map(|(_, split)| split)
    }
}
