// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What goes wrong in a simulated experiment: from a seed, or exactly as a test says.

use std::ops::Range;

use timewire_agent::protocol::{CommandOutcome, FailureKind};

/// Splitmix64 (Steele, Lea, Flood 2014): every seed is good, and the same seed gives the same run.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        let range = u64::try_from(most - least + 1).unwrap();
        least + i64::try_from(self.below(range)).unwrap()
    }

    /// So many times in a thousand.
    pub fn happens(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }
}

/// A side that is killed between two of its actions.
#[derive(Clone, Copy, Debug)]
pub struct Kill {
    /// How much of an entry that it writes just then is on disk, in eighths.
    pub torn: usize,
    /// How long until it is started again; never without.
    pub restart: Option<i64>,
}

/// What a message meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    Lost,
    Twice,
    Late,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub struct Chance {
    pub random: Random,
    /// In a thousand messages.
    pub lost: u64,
    pub twice: u64,
    pub late: u64,
    /// In ten thousand actions.
    pub killed: u64,
    /// In a thousand tasks.
    pub failing: u64,
    /// In a thousand stations: the clock is further off than allowed.
    pub off: u64,
    /// In a thousand messages: the clock of the receiver steps.
    pub steps: u64,
    /// How long a message is under way at least, and at most.
    pub ways: (i64, i64),
    /// In a thousand segments: it is sent again, as TCP does, with all that follow it.
    pub repeated: u64,
    /// In this time each message is under way for so long.
    pub slow: (Range<i64>, i64),
    /// From then on nothing goes wrong any more.
    pub until: i64,
    /// These actions, counted over all sides, are not done: their side is killed.
    pub kills: Vec<(u64, Kill)>,
    /// What the first messages meet.
    pub fates: Vec<Fate>,
    /// A thousand actions were counted, and so many messages.
    pub actions: u64,
    pub messages: usize,
}

pub const MS: i64 = 1_000_000;

impl Chance {
    /// Nothing goes wrong.
    pub fn calm(seed: u64) -> Chance {
        Chance {
            random: Random::new(seed),
            lost: 0,
            twice: 0,
            late: 0,
            killed: 0,
            failing: 0,
            off: 0,
            steps: 0,
            ways: (MS / 10, 2 * MS),
            repeated: 0,
            slow: (0..0, 0),
            until: i64::MAX,
            kills: Vec::new(),
            fates: Vec::new(),
            actions: 0,
            messages: 0,
        }
    }

    /// A network half a second long that loses one in twenty segments, under TCP.
    pub fn far(seed: u64) -> Chance {
        Chance { ways: (500 * MS, 520 * MS), repeated: 50, ..Chance::calm(seed) }
    }

    /// Everything may go wrong; how much depends on the seed too.
    pub fn wild(seed: u64) -> Chance {
        let mut random = Random::new(seed);
        let mut some = |most: u64| if random.happens(400) { 0 } else { random.below(most) };
        let (lost, twice, late) = (some(400), some(300), some(300));
        let (killed, failing, steps) = (some(200), some(60), some(30));
        let off = some(200);
        // Now and then all tries of a step fail.
        let failing = if seed.is_multiple_of(16) { 600 } else { failing };
        let until = random.between(0, 20_000 * MS);
        Chance {
            random,
            lost,
            twice,
            late,
            killed,
            failing,
            off,
            steps,
            until,
            ..Chance::calm(seed)
        }
    }

    pub fn fate(&mut self, now: i64) -> Fate {
        let fixed = self.fates.get(self.messages).copied();
        self.messages += 1;
        if let Some(fate) = fixed {
            return fate;
        }
        if now >= self.until {
            return Fate::Arrives;
        }
        match self.random.below(1_000) {
            n if n < self.lost => Fate::Lost,
            n if n < self.lost + self.twice => Fate::Twice,
            n if n < self.lost + self.twice + self.late => Fate::Late,
            _ => Fate::Arrives,
        }
    }

    /// How long a message is under way.
    pub fn way(&mut self, fate: Fate, now: i64) -> i64 {
        match fate {
            _ if self.slow.0.contains(&now) => self.slow.1,
            Fate::Late => self.random.between(20 * MS, 3_000 * MS),
            _ => {
                let mut way = self.random.between(self.ways.0, self.ways.1);
                let mut timeout = 3 * self.ways.1;
                while self.random.happens(self.repeated) {
                    (way, timeout) = (way + timeout, 2 * timeout);
                }
                way
            }
        }
    }

    pub fn kill(&mut self, now: i64) -> Option<Kill> {
        let action = self.actions;
        self.actions += 1;
        if let Some((_, kill)) = self.kills.iter().find(|(at, _)| *at == action) {
            return Some(*kill);
        }
        if now >= self.until || self.random.below(10_000) >= self.killed {
            return None;
        }
        let torn = usize::try_from(self.random.below(9)).unwrap();
        let restart = match self.random.below(8) {
            0 => None,
            1..=4 => Some(self.random.between(MS, 300 * MS)),
            _ => Some(self.random.between(300 * MS, 4_000 * MS)),
        };
        Some(Kill { torn, restart })
    }

    /// How long a task takes and how it ends.
    pub fn task(&mut self, now: i64) -> (i64, CommandOutcome) {
        let takes = self.random.between(MS, 60 * MS);
        if now < self.until && self.random.happens(self.failing) {
            return match self.random.below(3) {
                0 => (takes * 1_000, CommandOutcome::Done { exit: Some(0) }),
                1 => (takes, CommandOutcome::failed(FailureKind::NotStarted, "no such program")),
                _ => (takes, CommandOutcome::failed(FailureKind::Exited, "exit code 3")),
            };
        }
        (takes, CommandOutcome::Done { exit: Some(0) })
    }

    pub fn step(&mut self, now: i64) -> Option<i64> {
        let steps = now < self.until && self.random.happens(self.steps);
        steps.then(|| self.random.between(-2_000 * MS, 2_000 * MS))
    }
}
