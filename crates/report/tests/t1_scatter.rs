// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exact picture of known messages.

use std::path::Path;

use timewire_report::{Scatter, ScatterRow};

#[test]
fn t1_the_picture_of_known_messages() {
    // A ramp from 0.5 us, a level with a few outliers, and both together.
    let ramp: Vec<(u32, i64)> = (0..40_u32).map(|n| (n, 500 + 200 * i64::from(n))).collect();
    let level = |n: u32| if n % 13 == 5 { 60_000 } else { 1_700 };
    let level: Vec<(u32, i64)> = (0..40_u32).map(|n| (n, level(n))).collect();
    let both = ramp.iter().zip(&level).map(|(one, other)| (one.0, one.1 + other.1)).collect();
    let rows = [
        ScatterRow { name: "xdp:native block 1000/s".to_owned(), points: [ramp, level, both] },
        ScatterRow { name: "nothing came".to_owned(), ..ScatterRow::default() },
    ];
    let columns = ["driver", "stack", "complete"];
    let title = "forty messages";
    let scatter = Scatter { title, thresholds_ns: [2_000, 5_000], columns, rows: &rows };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/scatter.svg");
    if std::env::var_os("TIMEWIRE_BLESS").is_some() {
        std::fs::write(&path, scatter.svg()).unwrap();
    }
    assert_eq!(scatter.svg(), std::fs::read_to_string(&path).unwrap(), "{}", path.display());
}
