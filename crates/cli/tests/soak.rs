// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As many messages and summaries as a day has, from `talk` to `listen` in the laboratory's kernel:
//! neither of them may need more memory at the end than after the first hour's worth.
//!
//! A day at 10 messages and one summary a second is 864 000 messages and 86 400 summaries. Here a
//! second of that takes a millisecond of virtual time, in which the ten messages go as one burst:
//! the programs do as much as in the day, and the machine waits less. It takes a minute or a few,
//! so it runs only when `TIMEWIRE_SLOW=1` asks for it; `TIMEWIRE_SOAK_HOURS` makes the day shorter.

use crate::support;
use crate::support::TIMEWIRE;
use serde_json::Value as Json;

/// Says what both programs have in memory after an hour's worth (`$FIRST`), half of the time
/// (`$MORE` later), and just before the end (`$REST` later). What is printed is read away: a file
/// would grow in the memory of the machine.
const SCRIPT: &str = "set -e
ip link set lo up
mkfifo /tmp/said
grep '\"type\":\"result\"' < /tmp/said > /tmp/heard &
reader=$!
$TW listen 127.0.0.1:7000 --count $COUNT --every 1ms --json > /tmp/said &
listener=$!
until grep -q 1B58 /proc/net/udp; do sleep 0.01; done
$TW talk 127.0.0.1:7000 --cycle 1ms --per-cycle 10 --count $COUNT --tolerance 1s --json \
  > /tmp/talked &
talker=$!
resident() { awk '/^VmRSS/ { print $2 }' /proc/$1/status; }
for more in $FIRST $MORE $REST; do
  sleep $more
  echo \"[$(resident $listener), $(resident $talker)]\"
done
wait $talker
tr -d '\\n' < /tmp/talked
echo
wait $listener
wait $reader
cat /tmp/heard
";

/// Messages of an hour, and the virtual time that they take here. **Units**: s.
const HOUR: (u64, f64) = (36_000, 3.6);

/// What either may need more after the first hour. **Units**: kB.
const GROWTH: u64 = 64;

/// How many hours' worth of messages.
fn hours() -> u64 {
    let asked = std::env::var("TIMEWIRE_SOAK_HOURS");
    let hours = asked.map_or(24, |hours| hours.parse().expect("TIMEWIRE_SOAK_HOURS is a number"));
    assert!(hours >= 4, "TIMEWIRE_SOAK_HOURS={hours}: at least 4, to have hours after the first");
    hours
}

#[test]
fn t4_a_day_of_messages_needs_no_more_memory_than_its_first_hour() {
    if !std::env::var("TIMEWIRE_SLOW").is_ok_and(|value| value == "1") {
        return eprintln!("SKIP: slow: TIMEWIRE_SLOW=1 runs it");
    }
    let there = support::timewire(&["lab", "exec", "--time", "virtual", "--", "true"]);
    if there.code != Some(0) {
        return eprintln!("SKIP: no kernel of the laboratory: {}", there.stderr);
    }
    let hours = hours();
    let count = hours * HOUR.0;
    // The sums are short of the end: the programs must still be there.
    let (first, half) = (HOUR.1, hours as f64 * HOUR.1 / 2.0);
    let (more, rest) = (half - first, half - HOUR.1 / 3.0);
    let script = format!(
        "TW={TIMEWIRE} COUNT={count} FIRST={first:.1} MORE={more:.1} REST={rest:.1}\n{SCRIPT}"
    );
    let said = support::timewire(&["lab", "exec", "--time", "virtual", "--", "sh", "-c", &script]);
    let lines = said.stdout.lines().map(serde_json::from_str);
    let lines: Result<Vec<Json>, _> = lines.collect();
    let lines = lines.unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let [hour, half, end, talked, heard] = &lines[..] else { panic!("{said:?}") };
    eprintln!("resident kB of listener and talker, of {hours} h: {hour} {half} {end}");
    assert_eq!(talked["total"]["sent"], count, "{said:?}");
    let heard = &heard["data"]["heard"];
    let sequence = &heard["streams"][0]["sequence"];
    assert_eq!((&heard["messages"], &heard["dropped"]), (&count.into(), &0.into()));
    assert_eq!((&sequence["received"], &sequence["lost"]), (&count.into(), &0.into()));
    for program in 0..2 {
        let kb = |of: &Json| of[program].as_u64().unwrap();
        assert!(kb(hour) > 1_000, "{hour}");
        for later in [half, end] {
            assert!(kb(later) <= kb(hour) + GROWTH, "{hour} became {later}");
        }
    }
}
