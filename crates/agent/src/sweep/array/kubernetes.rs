// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An Indexed Job for Kubernetes, in one file with what its tasks read: `kubectl create` is all
//! that it takes. Tasks are without privilege, and leave their shares on a volume of the user's.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use crate::protocol::base64;

use super::{EngineFile, FILES, Head, VERSION, invalid, quoted, yaml};
use timewire_datapath::DatapathError;

/// What an Indexed Job needs to know.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// The program `timewire` in the image.
    pub program: String,
    /// The image of the tasks.
    pub image: String,
    /// The claim of the volume for shares, by its name.
    pub claim: String,
    /// CPUs of a task, as Kubernetes writes them.
    pub cpu: String,
    /// Memory of a task, as Kubernetes writes it.
    pub memory: String,
}

pub(super) const JOB: &str = "job.yaml";
/// Most bytes that tasks can read: Kubernetes stores them as one object of at most 1 MiB.
const MAX_BYTES: usize = 1_000_000;
/// Where tasks have the array, and the shares of all arrays.
const INPUTS: &str = "/timewire/array";
const RESULTS: &str = "/timewire/results";
/// What names a directory to write in.
const VARIABLES: [&str; 3] = ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"];
/// A user that no image gives anything to.
const USER: u32 = 10_001;

impl Kubernetes {
    pub(super) fn job(
        &self,
        head: &Head,
        identity: &str,
        at_once: usize,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<EngineFile, DatapathError> {
        self.check()?;
        let name = name(head, identity);
        let labels = json!({"app.kubernetes.io/name": "timewire", "timewire/array": name});
        let (inputs, items) = config_map(&name, &labels, inputs)?;
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "completionMode": "Indexed",
                "completions": head.tasks,
                "parallelism": at_once.min(head.tasks),
                "backoffLimitPerIndex": 2,
                "podFailurePolicy": {"rules": [
                    // A pod that had to go for another is no failure of its task.
                    {"action": "Ignore", "onPodConditions": [
                        {"type": "DisruptionTarget", "status": "True"},
                    ]},
                    // Left changed, or not supported there: once more is not better.
                    {"action": "FailIndex", "onExitCodes": {
                        "containerName": "task", "operator": "In", "values": [3, 4],
                    }},
                ]},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": self.pod(&name, &items),
                },
            },
        });
        let Head { name: experiment, tasks, trials, .. } = head;
        let text = format!(
            "# Timewire {VERSION}: {trials} trials of {experiment} as {tasks} tasks.\n\
             # kubectl create -f job.yaml\n{}---\n{}",
            yaml::document(&inputs),
            yaml::document(&job)
        );
        Ok(EngineFile { name: JOB, text, is_program: false })
    }

    fn pod(&self, name: &str, items: &[Json]) -> Json {
        let amount = json!({"cpu": self.cpu, "memory": self.memory});
        let shards = format!("{RESULTS}/{name}/shards");
        json!({
            // Kubernetes starts a failed index again, in a pod of its own.
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [{
                "name": "task",
                "image": self.image,
                "command": [literal(&self.program)],
                "args": [
                    "run", INPUTS, "--task", "$(JOB_COMPLETION_INDEX)", "--shards", shards,
                ],
                "env": VARIABLES.map(|name| json!({"name": name, "value": "/tmp"})),
                "resources": {"requests": amount, "limits": amount},
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "array", "mountPath": INPUTS, "readOnly": true},
                    {"name": "results", "mountPath": RESULTS},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [
                {"name": "array", "configMap": {"name": name, "items": items}},
                {"name": "results", "persistentVolumeClaim": {"claimName": self.claim}},
                // The laboratory's kernel has its memory there, as part of the task's.
                {"name": "tmp", "emptyDir": {"medium": "Memory"}},
            ],
        })
    }

    fn check(&self) -> Result<(), DatapathError> {
        let is_word = |text: &str| {
            !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        if !is_word(&self.image) {
            return Err(invalid(format!(
                "`{}` is no image; one is like registry.example/timewire:0.1",
                self.image
            )));
        }
        if self.program.is_empty() || self.program.contains('\0') {
            return Err(invalid("the program of the tasks has no name"));
        }
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let (first, last) = (self.claim.chars().next(), self.claim.chars().last());
        let is_claim = is_edge(first) && is_edge(last) && self.claim.chars().all(fits);
        if !is_claim || self.claim.len() > 253 {
            return Err(invalid(format!(
                "`{}` is no name of a claim; one has a-z, 0-9, `-` and `.`",
                self.claim
            )));
        }
        for (what, text, example) in
            [("CPUs", &self.cpu, "2 or 500m"), ("memory", &self.memory, "2Gi")]
        {
            if !is_quantity(text) {
                return Err(invalid(format!("`{text}` is no amount of {what}; {example} is one")));
            }
        }
        Ok(())
    }
}

/// A number and perhaps a unit, as Kubernetes writes amounts.
fn is_quantity(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let units = ["", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"];
    number.starts_with(|c: char| c.is_ascii_digit())
        && number.parse::<f64>().is_ok_and(|number| number > 0.0)
        && units.contains(&unit)
}

/// A word that has no variables for Kubernetes to put in.
fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}

/// The name of job and inputs. Names of pods are longer by the index, and are names of hosts.
fn name(head: &Head, identity: &str) -> String {
    let text: String = head.name.replace('_', "-").chars().take(40).collect();
    let digits: String = identity.chars().take(8).collect();
    format!("{text}-{digits}")
}

/// The inputs as an object, and where each of them goes.
fn config_map(
    name: &str,
    labels: &Json,
    inputs: &BTreeMap<String, Vec<u8>>,
) -> Result<(Json, Vec<Json>), DatapathError> {
    let bytes: usize = inputs.values().map(Vec::len).sum();
    if bytes > MAX_BYTES {
        return Err(invalid(format!(
            "the files of the experiment have {bytes} bytes; a Job takes {MAX_BYTES}: put large \
             files into the image"
        )));
    }
    let (mut data, mut binary, mut items) = (Map::new(), Map::new(), Vec::new());
    for (number, (path, bytes)) in inputs.iter().enumerate() {
        // Keys have no `/`, and fewer characters than names of files.
        let key = match path.split_once('/') {
            Some((FILES, _)) => format!("file-{number}"),
            _ => path.clone(),
        };
        items.push(json!({"key": key, "path": path}));
        match String::from_utf8(bytes.clone()) {
            Ok(text) => drop(data.insert(key, Json::String(text))),
            Err(_) => drop(binary.insert(key, Json::String(base64::encode(bytes)))),
        }
    }
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels},
        "immutable": true,
        "data": data,
        "binaryData": binary,
    });
    Ok((map, items))
}

/// What is done ends at once, so all tasks may begin again.
pub(super) fn again(directory: &Path) -> String {
    let job = directory.join(JOB);
    format!("kubectl replace --force -f {}", quoted(&job.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_amounts_are_those_of_kubernetes() {
        for good in ["1", "500m", "0.5", "2Gi", "100M"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "0", "Gi", "-1", "1 Gi", "1gi", ".5", "1e3", "1Gi\n", "two"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }
}
