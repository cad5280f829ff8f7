// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading who serves an interface: interrupts, polls, threads, and the CPUs of its queues.

use std::collections::BTreeMap;

use timewire_base::Span;

use super::parsed;
use crate::snapshot::Reading;
use crate::snapshot::model::{
    CpuSet, Irq, IrqState, Napi, NapiInstance, NapiInstanceState, Policy, RxQueue,
    ThreadScheduling, TxQueue, Word,
};
use crate::snapshot::source::{KernelThread, Poll, Question, Source};

type Threads = Reading<Vec<KernelThread>>;

/// Who serves an interface.
#[derive(Debug)]
pub struct Served {
    pub irqs: Irqs,
    pub napi: Napi,
    pub polls: Vec<NapiInstanceState>,
    pub rx: Reading<Vec<RxQueue>>,
    pub tx: Reading<Vec<TxQueue>>,
}

impl Served {
    /// Reads it; `/sys` must be about this interface's namespace.
    pub fn read(source: &dyn Source, interface: &str, threads: &Threads) -> Served {
        let irqs = irqs(source, interface, threads);
        let (napi, polls) = napi(source, interface, threads, &irqs.state);
        let (rx, tx) = queues(source, interface);
        Served { irqs, napi, polls, rx, tx }
    }

    /// Nothing of it can be read.
    pub fn unreadable(why: &str) -> Served {
        fn not<T>(why: &str) -> Reading<T> {
            Reading::Unreadable(why.to_owned())
        }
        Served {
            irqs: Irqs { settings: not(why), state: Vec::new(), counters: BTreeMap::new() },
            napi: Napi {
                threaded: not(why),
                defer_hard_irqs: not(why),
                gro_flush_timeout: not(why),
                instances: not(why),
            },
            polls: Vec::new(),
            rx: not(why),
            tx: not(why),
        }
    }
}

fn scheduling(thread: &KernelThread) -> Reading<ThreadScheduling> {
    let policy = match thread.policy {
        0 => Policy::Other,
        1 => Policy::Fifo,
        2 => Policy::Rr,
        3 => Policy::Batch,
        5 => Policy::Idle,
        6 => Policy::Deadline,
        7 => Policy::Ext,
        number => return Reading::Unreadable(format!("policy {number} is unknown")),
    };
    let cpus = Reading::Known(thread.cpus.as_str()).parse(str::parse::<CpuSet>);
    let fair = matches!(policy, Policy::Other | Policy::Batch);
    cpus.map(|cpus| ThreadScheduling {
        policy,
        priority: thread.priority,
        nice: if fair { thread.nice } else { 0 },
        cpus,
    })
}

/// The thread that a test chooses; absent when there is none.
fn thread<'a>(
    threads: &'a Threads,
    chosen: impl Fn(&KernelThread) -> bool,
    why_not: &str,
) -> (Option<&'a KernelThread>, Reading<ThreadScheduling>) {
    match threads {
        Reading::Known(list) => match list.iter().find(|thread| chosen(thread)) {
            Some(thread) => (Some(thread), scheduling(thread)),
            None => (None, Reading::Absent(why_not.to_owned())),
        },
        other => (None, Reading::Unreadable(other.why_not().unwrap_or_default().to_owned())),
    }
}

/// Threads that serve softirqs.
pub fn softirq_threads(threads: &Threads) -> Reading<BTreeMap<String, ThreadScheduling>> {
    threads.clone().map(|list| {
        let kinds = ["ksoftirqd/", "ktimers/", "rcuc/", "rcub/"];
        let serves = |thread: &&KernelThread| kinds.iter().any(|k| thread.name.starts_with(k));
        let one = |thread: &KernelThread| {
            Some((thread.name.clone(), scheduling(thread).known()?.clone()))
        };
        list.iter().filter(serves).filter_map(one).collect()
    })
}

/// Interrupts of an interface: settings, state, and how often each came on which CPU.
#[derive(Debug)]
pub struct Irqs {
    pub settings: Reading<Vec<Irq>>,
    pub state: Vec<IrqState>,
    pub counters: BTreeMap<String, BTreeMap<u32, u64>>,
}

fn irqs(source: &dyn Source, interface: &str, threads: &Threads) -> Irqs {
    let mut found =
        Irqs { settings: Reading::Known(Vec::new()), state: Vec::new(), counters: BTreeMap::new() };
    let numbers = match irq_numbers(source, interface) {
        Reading::Known(numbers) => numbers,
        other => {
            found.settings = other.map(|_| Vec::new());
            return found;
        }
    };
    let mut settings = Vec::new();
    for number in numbers {
        let actions = source.read(&format!("/sys/kernel/irq/{number}/actions"));
        // Numbers that no driver asked for have no action.
        let Some(name) = actions.known().filter(|name| !name.is_empty()).cloned() else {
            continue;
        };
        let cpus = |file: &str| parsed(source.read(&format!("/proc/irq/{number}/{file}")));
        let start = format!("irq/{number}-");
        let (found_thread, scheduling) =
            thread(threads, |t| t.name.starts_with(&start), "it has no thread");
        let counts = source.read(&format!("/sys/kernel/irq/{number}/per_cpu_count"));
        let counts = counts.known().map(String::as_str).unwrap_or_default();
        let counts =
            (0..).zip(counts.split(',')).filter_map(|(cpu, n)| Some((cpu, n.parse().ok()?)));
        found.counters.insert(name.clone(), counts.collect());
        found.state.push(IrqState {
            number,
            name: name.clone(),
            effective_affinity: cpus("effective_affinity_list"),
            thread_pid: found_thread.map(|thread| thread.pid),
        });
        settings.push(Irq { name, affinity: cpus("smp_affinity_list"), thread: scheduling });
    }
    found.settings = Reading::Known(settings);
    found
}

/// Of the NIC, or of the NIC that a device of virtio stands for.
fn irq_numbers(source: &dyn Source, interface: &str) -> Reading<Vec<u32>> {
    let device = format!("/sys/class/net/{interface}/device");
    if let Reading::Absent(_) = source.link(&device) {
        return Reading::Absent("it is no device with interrupts".to_owned());
    }
    let lists = ["msi_irqs", "../msi_irqs"].map(|at| source.list(&format!("{device}/{at}")));
    let numbers = lists.iter().filter_map(Reading::known).flatten();
    let mut numbers: Vec<u32> = numbers.filter_map(|name| name.parse().ok()).collect();
    if numbers.is_empty() {
        let one = parsed::<u32>(source.read(&format!("{device}/irq")));
        numbers.extend(one.known().filter(|number| **number != 0));
    }
    if numbers.is_empty() {
        return Reading::Absent("its bus does not tell which interrupts it has".to_owned());
    }
    numbers.sort_unstable();
    Reading::Known(numbers)
}

/// How an interface is polled: settings, and state.
fn napi(
    source: &dyn Source,
    interface: &str,
    threads: &Threads,
    irqs: &[IrqState],
) -> (Napi, Vec<NapiInstanceState>) {
    let at = format!("/sys/class/net/{interface}");
    let polls = source.ask(Question::Polls(interface));
    let polls = polls.parse(serde_json::from_value::<Vec<Poll>>);
    let threaded = source.read(&format!("{at}/threaded")).map(|text| match text.as_str() {
        "0" => Word::Switch(false),
        "1" => Word::Switch(true),
        _ => Word::Text(if text == "2" { "busy-poll".to_owned() } else { text }),
    });
    let (mut instances, mut state) = (Vec::new(), Vec::new());
    let polls = match polls {
        // The threads of older kernels have names that tell whose they are.
        Reading::Absent(_) => named_polls(threads, interface),
        polls => polls,
    };
    let polls = polls.map(|mut polls| {
        polls.sort_by_key(|poll| (poll.rx_queues.clone(), poll.tx_queues.clone(), poll.id));
        polls
    });
    for poll in polls.known().into_iter().flatten() {
        let (found, scheduling) =
            thread(threads, |t| Some(t.pid) == poll.pid, "no thread polls it");
        let irq = irqs.iter().find(|irq| Some(irq.number) == poll.irq);
        let span = |ns: Option<u64>| ns.and_then(|ns| i64::try_from(ns).ok()).map(Span::from_ns);
        instances.push(NapiInstance {
            rx_queues: poll.rx_queues.clone(),
            tx_queues: poll.tx_queues.clone(),
            irq: irq.map(|irq| irq.name.clone()),
            defer_hard_irqs: poll.defer_hard_irqs,
            gro_flush_timeout: span(poll.gro_flush_timeout_ns),
            irq_suspend_timeout: span(poll.irq_suspend_timeout_ns),
            thread: scheduling,
        });
        state.push(NapiInstanceState {
            id: poll.id,
            irq: poll.irq,
            thread_pid: found.map(|thread| thread.pid),
        });
    }
    let settings = Napi {
        threaded,
        defer_hard_irqs: parsed(source.read(&format!("{at}/napi_defer_hard_irqs"))),
        gro_flush_timeout: parsed(source.read(&format!("{at}/gro_flush_timeout")))
            .map(Span::from_ns),
        instances: polls.map(|_| instances),
    };
    (settings, state)
}

/// Polls whose threads are called `napi/INTERFACE-ID`.
fn named_polls(threads: &Threads, interface: &str) -> Reading<Vec<Poll>> {
    let start = format!("napi/{interface}-");
    let one = |thread: &KernelThread| {
        let id = thread.name.strip_prefix(&start)?.parse().ok()?;
        Some(Poll { id, pid: Some(thread.pid), ..Poll::default() })
    };
    let found: Vec<Poll> = threads.known().into_iter().flatten().filter_map(one).collect();
    if found.is_empty() {
        Reading::Absent("kernels before 6.8 do not tell what polls an interface".to_owned())
    } else {
        Reading::Known(found)
    }
}

/// The queues of an interface.
fn queues(source: &dyn Source, interface: &str) -> (Reading<Vec<RxQueue>>, Reading<Vec<TxQueue>>) {
    let at = format!("/sys/class/net/{interface}/queues");
    let names = source.list(&at);
    let count = |start: &str| {
        names.clone().map(|names| {
            let mut numbers: Vec<u32> =
                names.iter().filter_map(|name| name.strip_prefix(start)?.parse().ok()).collect();
            numbers.sort_unstable();
            numbers
        })
    };
    let mask = |path: String| source.read(&path).parse(|text| CpuSet::of_mask(&text));
    let rx = count("rx-").map(|numbers| {
        let one = |number: u32| RxQueue {
            rps_cpus: mask(format!("{at}/rx-{number}/rps_cpus")),
            rps_flows: parsed(source.read(&format!("{at}/rx-{number}/rps_flow_cnt"))),
        };
        numbers.into_iter().map(one).collect()
    });
    let tx = count("tx-").map(|numbers| {
        let one = |number: u32| TxQueue {
            xps_cpus: mask(format!("{at}/tx-{number}/xps_cpus")),
            xps_rxqs: source.read(&format!("{at}/tx-{number}/xps_rxqs")),
            max_rate_mbps: parsed(source.read(&format!("{at}/tx-{number}/tx_maxrate"))),
            traffic_class: source.read(&format!("{at}/tx-{number}/traffic_class")),
        };
        numbers.into_iter().map(one).collect()
    });
    (rx, tx)
}
