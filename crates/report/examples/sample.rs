// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the report of a made-up run to stdout: `cargo run -p timewire-report --example sample >
//! sample.html`. With `table`, the terminal tables instead; with `table colour 100`, coloured and
//! for 100 columns.

#[path = "../tests/sample/mod.rs"]
mod sample;

use timewire_report::{TableOptions, html, table};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let summary = sample::summary();
    if words.first().is_none_or(|w| w != "table") {
        print!("{}", html(&summary));
        return;
    }
    let width = words.iter().find_map(|w| w.parse().ok()).unwrap_or(160);
    print!(
        "{}",
        table(&summary, TableOptions { width, colour: words.iter().any(|w| w == "colour") })
    );
}
