// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The JSON Schemas that are shipped for editors are those of the program.
#![expect(clippy::disallowed_methods, reason = "committed files are read and written by the test")]

use std::path::Path;

use timewire_model::scenario::hosts_file::hosts_schema;
use timewire_model::scenario::network::network_schema;

fn is_fresh(name: &str, schema: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(name);
    if std::env::var("UPDATE_GOLDEN").is_ok() {
        std::fs::write(&path, schema).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == schema,
        "docs/schema/{name} is stale: UPDATE_GOLDEN=1 cargo test -p timewire-model"
    );
}

#[test]
fn t1_the_committed_schemas_are_fresh() {
    is_fresh("network.schema.json", &network_schema());
    is_fresh("hosts.schema.json", &hosts_schema());
}
