// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several runs of a network as one: on several processors, with what finished runs gave in a file.
//!
//! Runs are put together in the order of their seeds, so what comes out is the same however many
//! processors there are, and wherever it was ended and begun again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use timewire_base::Span;
use timewire_model::scenario::network::{NetworkCase, NetworkFile};
use timewire_sim::net::{NetError, Network, SimOutcome, Simulation, Traffic};

use crate::RunnerError;
use crate::error::Context as _;

use timewire_datapath::files;

use super::directory::{Directory, Recording, RunName};

/// Is told how far it is; the words are put together when they are shown.
pub type Progress<'a> = dyn FnMut(&dyn Fn() -> String) + 'a;

/// What is to be run.
pub struct Runs<'a> {
    /// With the seed of the first run; the others have the ones after it.
    pub network: Network,
    /// How many.
    pub runs: u32,
    /// So many at the same time.
    pub jobs: usize,
    /// Where finished runs are kept, and taken from.
    pub checkpoint: Option<&'a Path>,
    /// Where each run is written as it goes, and the file that names what is in it; with the case
    /// that the only run is of, where it is of one.
    pub directory: Option<(&'a NetworkFile, &'a Directory, Option<&'a NetworkCase>)>,
    /// Ends it before.
    pub is_asked_to_end: &'a (dyn Fn() -> bool + Sync),
}

/// What came out.
pub struct Ran {
    /// Of all runs together.
    pub outcome: SimOutcome,
    /// Set when it was ended on request before all runs had.
    pub cut: Option<Cut>,
}

/// What there is when not all runs came to their end.
pub struct Cut {
    /// The numbers of the runs, from 0, that the outcome is of: those that had ended. When none
    /// had, the first, as far as it was.
    pub runs: BTreeSet<u32>,
    /// How far the only run was; `None` for runs that had ended.
    pub at: Option<Span>,
}

/// Why there is no outcome.
pub enum Failed {
    Network(NetError),
    /// Something cannot be read or written.
    File(RunnerError),
}

impl Runs<'_> {
    /// All of them together.
    pub fn run(&self, progress: &mut Progress<'_>) -> Result<Ran, Failed> {
        let mut kept = match self.checkpoint {
            Some(path) => Some(Checkpoint::open(path, self).map_err(Failed::File)?),
            None => None,
        };
        let (mut done, mut all) = kept.as_mut().map_or((0, None), Checkpoint::take);
        let first = done;
        let mut told = TerminalProgress::new(self, done);
        let mut early = BTreeMap::new();
        let mut broken = None;
        let stop = AtomicBool::new(false);
        let (to_do, next) = mpsc::channel();
        let (tell, news) = mpsc::channel();
        let next = Mutex::new(next);
        let window = u32::try_from(2 * self.jobs).unwrap_or(u32::MAX);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.min(usize::try_from(self.runs - done).unwrap_or(1)) {
                let (tell, next, stop) = (tell.clone(), &next, &stop);
                scope.spawn(move || self.work((next, first), &tell, stop));
            }
            drop(tell);
            // No more than a few wait for one that takes long.
            let mut given = done;
            let mut step = || {
                while done < self.runs {
                    while given < self.runs.min(done.saturating_add(window)) {
                        // Without workers the news end.
                        let _ = to_do.send(given);
                        given += 1;
                    }
                    match news.recv().expect("invariant: a run that is given to do ends") {
                        News::Went { ps, events } => told.went(ps, events, done, progress),
                        News::Panicked | News::Broken(_) => return Ok(()),
                        News::Ended(run, outcome) => drop(early.insert(run, *outcome)),
                    }
                    while let Some(outcome) = early.remove(&done) {
                        add(&mut all, outcome?);
                        done += 1;
                        if let (Some(kept), Some(all)) = (&mut kept, &all) {
                            let is_last = done == self.runs;
                            kept.keep(done, all, is_last).map_err(Failed::File)?;
                        }
                    }
                    if (self.is_asked_to_end)() {
                        break;
                    }
                }
                Ok(())
            };
            let ended = step();
            stop.store(true, Ordering::Relaxed);
            drop(to_do);
            for news in news {
                match news {
                    News::Ended(run, outcome) => drop(early.insert(run, *outcome)),
                    News::Broken(it) => broken = Some(it),
                    News::Went { .. } | News::Panicked => {}
                }
            }
            ended
        })?;
        let cut = (done < self.runs).then(|| self.cut(&mut all, (done, early), broken, &mut kept));
        let cut = cut.transpose()?;
        let outcome = all.expect("invariant: there is a run");
        Ok(Ran { outcome, cut })
    }

    /// Puts together what there is: all runs that have ended, or else the one that was broken off.
    fn cut(
        &self,
        all: &mut Option<SimOutcome>,
        (done, early): (u32, BTreeMap<u32, Result<SimOutcome, Failed>>),
        broken: Option<Box<Broken>>,
        kept: &mut Option<Checkpoint>,
    ) -> Result<Cut, Failed> {
        if let (Some(kept), Some(all)) = (kept, &all) {
            kept.keep(done, all, true).map_err(Failed::File)?;
        }
        let mut runs: BTreeSet<u32> = (0..done).collect();
        for (run, outcome) in early {
            add(all, outcome?);
            runs.insert(run);
        }
        let at = match (&all, broken) {
            (None, Some(broken)) => {
                let Broken { outcome, at, recording } = *broken;
                if let (Some((_, directory, _)), Some(mut recording)) = (self.directory, recording)
                {
                    recording.broken_off(at);
                    directory.recorded(recording).map_err(Failed::File)?;
                }
                add(all, outcome);
                runs.insert(0);
                Some(at)
            }
            _ => None,
        };
        Ok(Cut { runs, at })
    }

    /// Takes one run after the other.
    fn work(
        &self,
        (next, first): (&Mutex<mpsc::Receiver<u32>>, u32),
        tell: &mpsc::Sender<News>,
        stop: &AtomicBool,
    ) {
        let _guard = Guard(tell);
        loop {
            let taken = next.lock().expect("invariant: nothing panics while it waits").recv();
            let Ok(run) = taken else { return };
            // Of the first there is something to tell in any case.
            if run != first && stop.load(Ordering::Relaxed) {
                return;
            }
            let news = match self.one(run, tell, stop) {
                Ok(One::Ended(outcome)) => News::Ended(run, Box::new(Ok(outcome))),
                Ok(One::Broken(broken)) if run == first => News::Broken(broken),
                Ok(One::Broken(_)) => return,
                Err(failed) => News::Ended(run, Box::new(Err(failed))),
            };
            if tell.send(news).is_err() {
                return;
            }
        }
    }

    /// One run, to its end or until it is to stop.
    fn one(&self, run: u32, tell: &mpsc::Sender<News>, stop: &AtomicBool) -> Result<One, Failed> {
        const EVENTS: u64 = 200_000;
        let mut network = self.network.clone();
        network.seed = network.seed.wrapping_add(run.into());
        let mut simulation = Simulation::new(&network).map_err(Failed::Network)?;
        let written = match self.directory {
            None => None,
            Some((file, directory, case)) => {
                let seed = network.seed;
                let name = case.map_or_else(
                    || RunName::numbered(run + 1, seed),
                    |case| RunName::of(case, seed),
                );
                let recording = directory.record((file, &network), &name, &mut simulation);
                Some((directory, recording.map_err(Failed::File)?))
            }
        };
        let (mut ps, mut events) = (0, 0);
        while simulation.go_on(EVENTS).map_err(Failed::Network)? {
            let (now, _) = simulation.progress();
            let (before, handled) = (ps, events);
            (ps, events) = (now.as_ps(), simulation.events());
            let went = News::Went { ps: ps - before, events: events - handled };
            if tell.send(went).is_err() || stop.load(Ordering::Relaxed) {
                let at = Span::from_ns(i64::try_from(ps / 1_000).unwrap_or(i64::MAX));
                let recording = written.map(|(_, recording)| recording);
                let outcome = simulation.finish();
                return Ok(One::Broken(Box::new(Broken { outcome, at, recording })));
            }
        }
        let outcome = simulation.finish();
        if let Some((directory, recording)) = written {
            directory.recorded(recording).map_err(Failed::File)?;
        }
        Ok(One::Ended(outcome))
    }
}

/// What became of a run.
enum One {
    Ended(SimOutcome),
    Broken(Box<Broken>),
}

/// A run that was stopped.
struct Broken {
    outcome: SimOutcome,
    /// How far it was.
    at: Span,
    recording: Option<Recording>,
}

/// What a worker says. When all have gone there is none.
enum News {
    /// So much more of a run is done.
    Went {
        ps: u64,
        events: u64,
    },
    Ended(u32, Box<Result<SimOutcome, Failed>>),
    /// The first, which was stopped.
    Broken(Box<Broken>),
    Panicked,
}

/// Nobody waits for a worker that has panicked.
struct Guard<'a>(&'a mpsc::Sender<News>);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Without a listener nobody waits.
            let _ = self.0.send(News::Panicked);
        }
    }
}

fn add(all: &mut Option<SimOutcome>, outcome: SimOutcome) {
    match all {
        Some(all) => all.merge(outcome),
        None => *all = Some(outcome),
    }
}

/// What a terminal is told while it goes.
struct TerminalProgress {
    started: Instant,
    runs: u32,
    of_one_ps: u128,
    went_ps: u128,
    kept_ps: u128,
    events: u64,
}

impl TerminalProgress {
    fn new(runs: &Runs, kept: u32) -> TerminalProgress {
        let ns = u128::try_from(runs.network.duration.as_ns()).unwrap_or(0).max(1);
        TerminalProgress {
            started: Instant::now(),
            runs: runs.runs,
            of_one_ps: ns * 1_000,
            went_ps: 0,
            kept_ps: u128::from(kept) * ns * 1_000,
            events: 0,
        }
    }

    fn went(&mut self, ps: u64, events: u64, done: u32, progress: &mut Progress<'_>) {
        self.went_ps += u128::from(ps);
        self.events += events;
        progress(&|| {
            let host = self.started.elapsed().as_millis().max(1);
            let all = u128::from(self.runs) * self.of_one_ps;
            let so_far = self.went_ps + self.kept_ps;
            let left = host * all.saturating_sub(so_far) / self.went_ps.max(1);
            format!(
                "{done} of {} runs, {}% simulated, {} events/s, {}s left",
                self.runs,
                so_far * 100 / all,
                u128::from(self.events) * 1_000 / host,
                left / 1_000
            )
        });
    }
}

/// A file of finished runs.
struct Checkpoint {
    path: PathBuf,
    /// What is in it but for the outcome.
    head: Head,
    outcome: Option<SimOutcome>,
    written: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    schema: String,
    /// Of this program: another may give other results.
    version: String,
    /// Of the network, with everything that it read from other files.
    network: String,
    seed: u64,
    runs: u32,
}

#[derive(Serialize, Deserialize)]
struct Stored<O> {
    #[serde(flatten)]
    head: Head,
    outcome: O,
}

const SCHEMA: &str = "timewire.sim-checkpoint/1";
/// The file is not written more often, except at the end.
const EVERY: Duration = Duration::from_secs(5);

impl Checkpoint {
    /// What the file has, or a new one.
    fn open(path: &Path, runs: &Runs) -> Result<Checkpoint, RunnerError> {
        let head = Head {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            network: digest(&runs.network),
            seed: runs.network.seed,
            runs: 0,
        };
        let name = path.display();
        let new = |head| Checkpoint { path: path.to_owned(), head, outcome: None, written: None };
        let file = match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(new(head)),
            file => file.with_context(|| format!("cannot read {name}"))?,
        };
        let stored: Stored<SimOutcome> = serde_json::from_reader(BufReader::new(file))
            .with_context(|| format!("{name} has no finished runs of `sim`; name another file"))?;
        let own = |what: String| {
            RunnerError::Invalid(format!("{name} {what}; name another file for these runs"))
        };
        let found = &stored.head;
        if found.schema != head.schema {
            return Err(own(format!("is of the format `{}`, not `{SCHEMA}`", found.schema)));
        }
        if found.version != head.version {
            let (theirs, ours) = (&found.version, &head.version);
            return Err(own(format!("was written by timewire {theirs}, and this is {ours}")));
        }
        if found.seed != head.seed {
            return Err(own(format!("has runs from seed {} on, not {}", found.seed, head.seed)));
        }
        if found.network != head.network || stored.outcome.streams.len() != runs.streams() {
            return Err(own("has runs of another network, or this one has changed since".into()));
        }
        if found.runs > runs.runs {
            let (there, asked) = (found.runs, runs.runs);
            return Err(own(format!("has {there} runs already, more than the {asked} asked for")));
        }
        Ok(Checkpoint { outcome: Some(stored.outcome), ..new(stored.head) })
    }

    fn take(&mut self) -> (u32, Option<SimOutcome>) {
        (self.head.runs, self.outcome.take())
    }

    /// So many runs gave this.
    fn keep(&mut self, runs: u32, all: &SimOutcome, is_last: bool) -> Result<(), RunnerError> {
        let is_early = self.written.is_some_and(|written| written.elapsed() < EVERY);
        // Mistakes of the simulator are not kept, nor anything that comes with them.
        if !all.violations.is_empty() || (is_early && !is_last) {
            return Ok(());
        }
        self.head.runs = runs;
        let stored = Stored { head: self.head.clone(), outcome: all };
        let cannot = || format!("cannot write {}", self.path.display());
        let mut bytes = serde_json::to_vec(&stored).with_context(cannot)?;
        bytes.push(b'\n');
        files::write_whole(&self.path, &bytes)?;
        self.written = Some(Instant::now());
        Ok(())
    }
}

impl Runs<'_> {
    fn streams(&self) -> usize {
        self.network.streams.len()
    }
}

/// FNV-1a of everything that the network is, but for its seed.
fn digest(network: &Network) -> String {
    struct Hash(u64);
    impl fmt::Write for Hash {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            Ok(())
        }
    }
    let (mut hash, mut network) = (Hash(0xcbf2_9ce4_8422_2325), network.clone());
    network.seed = 0;
    write!(hash, "{network:?}").expect("invariant: a number takes any text");
    for stream in &network.streams {
        if let Traffic::Replay { frames, .. } = &stream.traffic {
            for frame in frames.each() {
                write!(hash, "{frame:?}").expect("invariant: a number takes any text");
            }
        }
    }
    format!("{:016x}", hash.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::tempdir;
    use timewire_base::{BitsPerSecond, FrameLen, Span};

    use timewire_sim::net::{Delay, LinkSpec, NodeSpec, Replay, StreamSpec};

    use super::*;

    /// Two stations and a third behind a bridge, frames at random to both, and captured ones.
    fn network(seed: u64) -> Network {
        let mut network = Network::empty(Span::from_ms(5), seed);
        network.nodes = vec![NodeSpec::default(); 4];
        let rate = BitsPerSecond::new(100_000_000).unwrap();
        let link = |end| LinkSpec::plain(3, end, rate, Span::from_ns(500));
        network.links = (0..3).map(link).collect();
        let gap = Delay::Exponential { min: Span::ZERO, mean: Span::from_us(20) };
        let random = StreamSpec {
            from: 0,
            to: 1,
            class: 0,
            frame: FrameLen::new(100).unwrap(),
            traffic: Traffic::Sporadic { gap },
            launch: None,
            shape: None,
        };
        network.streams = vec![random.clone(), StreamSpec { traffic: captured(3), ..random }];
        network.more_listeners.insert(0, vec![2]);
        network
    }

    /// Three frames, the last of them so late.
    fn captured(last_us: i64) -> Traffic {
        let mut frames = Replay::default();
        for us in [1, 2, last_us] {
            frames.push(Span::from_us(us), FrameLen::new(80).unwrap()).unwrap();
        }
        Traffic::Replay { frames: Arc::new(frames), offset: Span::ZERO }
    }

    fn run(
        network: Network,
        runs: u32,
        jobs: usize,
        file: Option<&Path>,
    ) -> Result<SimOutcome, String> {
        let is_asked_to_end = &|| false;
        let runs = Runs { network, runs, jobs, checkpoint: file, directory: None, is_asked_to_end };
        let ran = runs.run(&mut |_| {}).map_err(|failed| match failed {
            Failed::Network(error) => error.to_string(),
            Failed::File(error) => format!("{error:#}"),
        })?;
        assert!(ran.cut.is_none());
        Ok(ran.outcome)
    }

    #[test]
    fn t2_runs_give_the_same_however_many_go_at_once_and_wherever_they_stop() {
        let place = tempdir().unwrap();
        let file = place.path().join("runs.json");
        let whole = run(network(3), 9, 1, None).unwrap();
        let each = (0..9).map(|n| Simulation::run(&network(3 + n)).unwrap().streams[0].sent);
        assert_eq!(whole.streams[0].sent, each.sum::<u64>());
        let to_each: Vec<u64> = whole.listeners[&0].iter().map(|it| it.sent).collect();
        assert_eq!((to_each.len(), to_each.iter().sum()), (2, whole.streams[0].sent));
        assert_eq!(whole.streams[1].delivered, 27);
        assert_eq!(run(network(3), 9, 4, None).unwrap(), whole);
        // As if it had been killed after four runs, and after all.
        run(network(3), 4, 3, Some(&file)).unwrap();
        assert_eq!(run(network(3), 9, 2, Some(&file)).unwrap(), whole);
        let kept = fs::read(&file).unwrap();
        assert_eq!(run(network(3), 9, 2, Some(&file)).unwrap(), whole);
        assert_eq!(fs::read(&file).unwrap(), kept, "nothing was run again");
    }

    #[test]
    fn t2_what_other_runs_left_is_refused_and_stays() {
        let place = tempdir().unwrap();
        let file = place.path().join("runs.json");
        run(network(3), 2, 1, Some(&file)).unwrap();
        let kept = fs::read_to_string(&file).unwrap();
        let refused = |network: Network, runs, said: &str| {
            let before = fs::read(&file).unwrap();
            let error = run(network, runs, 1, Some(&file)).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert_eq!(fs::read(&file).unwrap(), before);
        };
        refused(network(4), 2, "has runs from seed 3 on, not 4; name another file");
        refused(network(3), 1, "has 2 runs already, more than the 1 asked for");
        let mut other = network(3);
        other.nodes[0].send = Delay::Fixed(Span::from_us(1));
        refused(other, 2, "has runs of another network, or this one has changed since");
        let mut other = network(3);
        other.streams[1].traffic = captured(4);
        refused(other, 2, "has runs of another network, or this one has changed since");
        let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
        fs::write(&file, kept.replace(&version, "\"version\":\"0.0.0\"")).unwrap();
        refused(network(3), 2, "was written by timewire 0.0.0, and this is");
        fs::write(&file, kept.replace("checkpoint/1", "checkpoint/9")).unwrap();
        refused(network(3), 2, "is of the format `timewire.sim-checkpoint/9`");
        fs::write(&file, &kept[..kept.len() / 2]).unwrap();
        refused(network(3), 2, "has no finished runs of `sim`; name another file");
        let mut none = network(3);
        none.links.clear();
        assert!(run(none, 2, 2, None).unwrap_err().contains("has no way"));
    }
}
