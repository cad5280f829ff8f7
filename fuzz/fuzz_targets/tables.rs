// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of other planners, and launch times. The input is tables with a line `---` between.
#![no_main]

use libfuzzer_sys::fuzz_target;
use timewire_plan::exchange::{
    Tsnbench, Tsnkit, TsnkitTables, read_launches, read_tsnbench, read_tsnkit, read_tsnkit_result,
};

fuzz_target!(|data: &[u8]| {
    let tables = timewire_fuzz::parts(data);
    let table = |index: usize| ("any", tables.get(index).copied().unwrap_or_default());
    let _ = read_launches("any", data);
    for keeps_ways in [false, true] {
        let _ = read_tsnbench(table(0), table(1), Tsnbench { keeps_ways });
    }
    for round in [false, true] {
        let how = Tsnkit { round, overhead_bytes: 0 };
        let Ok(problem) = read_tsnkit(table(0), table(1), how) else { continue };
        let delay = tables.get(6).map(|bytes| ("any", *bytes));
        let result = TsnkitTables {
            gcl: table(2),
            offset: table(3),
            queue: table(4),
            route: table(5),
            delay,
        };
        let _ = read_tsnkit_result(&problem, &result);
    }
});
