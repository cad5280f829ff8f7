// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays as they are made and read.

use std::process::{Command, Stdio};

use saphyr_parser::{Event, Parser, ScalarStyle};
use tempfile::TempDir;

use super::*;

/// A directory that goes with the value; its name is no word of a shell.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::Builder::new().suffix(" it's \"$x\"\n;").tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn array(&self) -> PathBuf {
        self.path().join("array")
    }
}

/// Values that are more than a word to a shell, to YAML and to Kubernetes.
const VALUE: &str = "it's \"$(touch x)\"\n- \u{2028}'`$(JOB) #: \u{1f600}";
const FILE: &str = "below/it's $(x) # \"file\": \u{e9}";

fn script(scratch: &Scratch) -> Script {
    let value = serde_json::to_string(VALUE).unwrap();
    let from = serde_json::to_string(FILE).unwrap();
    let text = format!(
        "name: a_b\nrepeats: 2\nseed: 5\nvariables:\n\
         \x20 - {{name: v, values: [1, {value}]}}\n  - {{name: n, from: 1, to: 3}}\nstations:\n\
         \x20 - name: s\n    phases:\n\
         \x20     setup: [{{put: f, from: {from}}}, {{put: b, from: bytes}}]\n\
         \x20     run: [{{run: [echo, '${{v}}${{n}}'], name: e}}]\n"
    );
    fs::create_dir_all(scratch.path().join("below")).unwrap();
    fs::write(scratch.path().join(FILE), "text ${v}\n\tof \"a\" file: \u{2028}\\n\n").unwrap();
    fs::write(scratch.path().join("bytes"), [0xff, 0, b'\n']).unwrap();
    let file = Orchestrated::parse("e", &text).unwrap_or_else(|errors| panic!("{errors}"));
    Script { text, ..Script::new(file, scratch.path().to_owned()) }
}

fn spec(tasks: Option<usize>, target: Target) -> Spec {
    Spec { tasks, at_once: None, target }
}

fn slurm() -> Target {
    Target::Slurm(Slurm { program: "/opt/it's $(here)\n/timewire".to_owned() })
}

fn kubernetes() -> Kubernetes {
    Kubernetes {
        program: "timewire$(X)".to_owned(),
        image: "registry.example/timewire:0.1".to_owned(),
        claim: "results".to_owned(),
        cpu: "1".to_owned(),
        memory: "2Gi".to_owned(),
    }
}

fn make(
    script: &Script,
    hosts: Option<(&HostsFile, &str)>,
    spec: &Spec,
    directory: &Path,
) -> Result<Array, DatapathError> {
    prepare(script, hosts, spec)?.write(directory)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn t0_shares_are_even_and_every_trial_is_in_one() {
    for trials in [1, 2, 7, 1_000, 9_999] {
        for tasks in [1, 2, 3, 7, 1_000].into_iter().filter(|tasks| *tasks <= trials) {
            let shares: Vec<_> = (0..tasks).map(|task| share(trials, tasks, task)).collect();
            let places: Vec<usize> = shares.iter().cloned().flatten().collect();
            assert_eq!(places, (0..trials).collect::<Vec<_>>());
            let sizes = || shares.iter().map(std::iter::ExactSizeIterator::len);
            assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
            assert!(sizes().all(|size| size > 0));
        }
    }
}

#[test]
fn t1_an_array_has_all_that_its_tasks_read_and_nothing_else_is_taken() {
    let scratch = Scratch::new();
    let script = script(&scratch);
    let array = make(&script, None, &spec(Some(5), slurm()), &scratch.array()).unwrap();
    assert_eq!((array.head.trials, array.head.tasks), (12, 5));
    // The same order as that of one run.
    let one = trials(&script, "0").unwrap();
    let numbers = |all: &[Trial]| all.iter().map(|it| it.number).collect::<Vec<_>>();
    assert_eq!(numbers(&array.trials), numbers(&one));
    let points: Json = serde_json::from_str(&read(&scratch.array().join(POINTS))).unwrap();
    for (point, it) in points["points"].as_array().unwrap().iter().zip(&one) {
        assert_eq!(point["values"], json!(it.values));
        let task = usize::try_from(point["task"].as_u64().unwrap()).unwrap();
        assert!(array.share(task).unwrap().iter().any(|own| own.number == it.number));
    }
    assert!(array.share(5).unwrap_err().to_string().contains("tasks 0 to 4"));
    // The directory that the files come from is no longer needed, and the array may be moved.
    fs::remove_dir_all(scratch.path().join("below")).unwrap();
    let moved = scratch.path().join("moved");
    fs::rename(scratch.array(), &moved).unwrap();
    let again = open(&moved).unwrap();
    assert_eq!(again.identity, array.identity);
    let plans = |array: &Array| array.trials.iter().map(|p| p.plan.clone()).collect::<Vec<_>>();
    assert_eq!(plans(&again), plans(&array));
    let error = make(&script, None, &spec(None, slurm()), &moved).unwrap_err().to_string();
    assert!(error.contains("cannot read"), "{error}");
    // What was changed is not performed.
    for (name, why) in [
        (TEXT, "not what the array was made with"),
        (HOSTS, "not what the array was made with"),
        (&format!("{FILES}/{FILE}"), "not what the array was made with"),
    ] {
        let before = read(&moved.join(name));
        fs::write(moved.join(name), format!("{before}\n")).unwrap();
        let error = open(&moved).unwrap_err().to_string();
        assert!(error.contains(why), "{name}: {error}");
        fs::write(moved.join(name), before).unwrap();
    }
    let head = read(&moved.join(ARRAY));
    for (from, to, why) in [
        (VERSION, "0.0.9", "is of Timewire 0.0.9"),
        (SCHEMA, "timewire.array/9", "its schema is timewire.array/9"),
        ("\"tasks\": 5", "\"tasks\": 4", "finds other trials"),
        ("\"run\"", "\"ran\"", "unknown field"),
    ] {
        fs::write(moved.join(ARRAY), head.replacen(from, to, 1)).unwrap();
        let error = open(&moved).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn t1_specs_that_cannot_be_change_nothing() {
    let scratch = Scratch::new();
    let script = script(&scratch);
    let told = |host: Option<&str>, spec: &Spec| {
        let text = host.map(|host| format!("timewire: 1\nkind: hosts\nstations: [{host}]\n"));
        let parsed = text.as_ref().map(|text| (HostsFile::parse("h", text).unwrap(), text));
        let hosts = parsed.as_ref().map(|(hosts, text)| (hosts, text.as_str()));
        make(&script, hosts, spec, &scratch.array())
    };
    for (host, why) in [
        (Some("{name: s, agent: 'tls://h:1'}"), "--at-once 1"),
        (Some("{name: s, agent: 'ssh://h'}"), "--at-once 1"),
        (Some("{name: t, agent: local}"), "no station `s`"),
    ] {
        let error = told(host, &spec(None, slurm())).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let bad = [
        (Kubernetes { image: "a b".to_owned(), ..kubernetes() }, "no image"),
        (Kubernetes { claim: "a/b".to_owned(), ..kubernetes() }, "no name of a claim"),
        (Kubernetes { claim: "-".to_owned(), ..kubernetes() }, "no name of a claim"),
        (Kubernetes { cpu: "two".to_owned(), ..kubernetes() }, "no amount of CPUs"),
        (Kubernetes { memory: "2G\n".to_owned(), ..kubernetes() }, "no amount of memory"),
        (Kubernetes { program: String::new(), ..kubernetes() }, "has no name"),
    ];
    for (bad, why) in bad {
        let target = Target::Kubernetes(bad);
        let error = told(None, &spec(None, target)).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    assert!(!scratch.array().exists());
    let one = Spec { at_once: Some(1), ..spec(None, slurm()) };
    assert_eq!(told(Some("{name: s, agent: 'ssh://h'}"), &one).unwrap().head.tasks, 12);
}

/// Whether a shell finds a script whole.
fn is_good_shell(path: &Path) {
    let checked = Command::new("sh").arg("-n").arg(path).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
    // Where there is one that looks closer.
    if let Ok(checked) = Command::new("shellcheck").arg(path).stdin(Stdio::null()).output() {
        assert!(checked.status.success(), "{checked:?}");
    }
}

#[test]
fn t1_scripts_for_slurm_are_whole_for_any_name() {
    for (tasks, at_once, indices) in [
        (None, None, "0-11"),
        (Some(1), None, "0-0"),
        (Some(100), Some(3), "0-11%3"),
        (Some(4), Some(4), "0-3"),
    ] {
        let scratch = Scratch::new();
        let spec = Spec { at_once, ..spec(tasks, slurm()) };
        let array = make(&script(&scratch), None, &spec, &scratch.array()).unwrap();
        let submit = scratch.array().join("submit.sh");
        for path in [&submit, &scratch.array().join("task.sh")] {
            is_good_shell(path);
            // The variables of the experiment are in none of them.
            assert!(!read(path).contains("touch x"), "{}", read(path));
        }
        let line = format!("exec sbatch --array={indices} \"$@\" task.sh\n");
        assert!(read(&submit).ends_with(&line), "{}", read(&submit));
        // The command that is told is one command, whatever the directory is called.
        let again = array.again(&[0]);
        let said = Command::new("sh").arg("-c").arg(format!("printf '%s|' {again}")).output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert_eq!(said, format!("{}|--array=0|", submit.display()));
    }
}

/// The documents of a YAML text.
fn documents(text: &str) -> Vec<Json> {
    let mut open: Vec<(Json, Option<String>)> = Vec::new();
    let mut all = Vec::new();
    for event in Parser::new_from_str(text) {
        let value = match event.unwrap().0 {
            Event::SequenceStart(..) => {
                open.push((json!([]), None));
                continue;
            }
            Event::MappingStart(..) => {
                open.push((json!({}), None));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().unwrap().0,
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                serde_json::from_str(&text).unwrap_or_else(|_| json!(text))
            }
            Event::Scalar(text, ..) => json!(text),
            _ => continue,
        };
        match open.last_mut() {
            None => all.push(value),
            Some((Json::Array(items), _)) => items.push(value),
            Some((Json::Object(entries), key @ None)) => {
                assert!(!entries.contains_key(value.as_str().unwrap()));
                *key = Some(value.as_str().unwrap().to_owned());
            }
            Some((Json::Object(entries), key)) => {
                entries.insert(key.take().unwrap(), value);
            }
            Some(_) => unreachable!("only these are opened"),
        }
    }
    all
}

#[test]
fn t1_a_job_for_kubernetes_is_read_back_with_all_its_fields() {
    let scratch = Scratch::new();
    let spec = Spec { at_once: Some(2), ..spec(Some(3), Target::Kubernetes(kubernetes())) };
    let array = make(&script(&scratch), None, &spec, &scratch.array()).unwrap();
    let all = documents(&read(&scratch.array().join("job.yaml")));
    let [inputs, job] = all.as_slice() else { panic!("{all:?}") };
    let name = job["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, format!("a-b-{}", &array.identity[..8]));
    assert_eq!((&inputs["apiVersion"], &inputs["kind"]), (&json!("v1"), &json!("ConfigMap")));
    assert_eq!((&job["apiVersion"], &job["kind"]), (&json!("batch/v1"), &json!("Job")));
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    assert_eq!((&spec["completions"], &spec["parallelism"]), (&json!(3), &json!(2)));
    assert_eq!(spec["backoffLimitPerIndex"], 2);
    let rules = &spec["podFailurePolicy"]["rules"];
    assert_eq!(
        rules[0]["onPodConditions"][0],
        json!({"type": "DisruptionTarget", "status": "True"})
    );
    assert_eq!(
        (&rules[1]["action"], &rules[1]["onExitCodes"]["values"]),
        (&json!("FailIndex"), &json!([3, 4]))
    );
    let pod = &spec["template"]["spec"];
    // Without it there are no limits and no rules of failures.
    assert_eq!(pod["restartPolicy"], "Never");
    let task = &pod["containers"][0];
    assert_eq!(rules[1]["onExitCodes"]["containerName"], task["name"]);
    assert_eq!(task["command"], json!(["timewire$$(X)"]));
    let shards = format!("/timewire/results/{name}/shards");
    let args = ["run", "/timewire/array", "--task", "$(JOB_COMPLETION_INDEX)", "--shards", &shards];
    assert_eq!(task["args"], json!(args));
    assert_eq!(task["resources"]["requests"], json!({"cpu": "1", "memory": "2Gi"}));
    assert_eq!(task["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(task["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let volumes = pod["volumes"].as_array().unwrap();
    let volume = |name: &str| volumes.iter().find(|it| it["name"] == name).unwrap();
    for mount in task["volumeMounts"].as_array().unwrap() {
        volume(mount["name"].as_str().unwrap());
    }
    assert_eq!(volume("results")["persistentVolumeClaim"]["claimName"], "results");
    assert_eq!(volume("array")["configMap"]["name"], name);
    // A server refuses keys that it does not know; these are of batch/v1 and v1.
    let job_keys = "backoffLimit backoffLimitPerIndex completionMode completions maxFailedIndexes \
                    parallelism podFailurePolicy podReplacementPolicy suspend template";
    let pod_keys = "automountServiceAccountToken containers enableServiceLinks restartPolicy \
                    securityContext volumes";
    let task_keys = "args command env image name resources securityContext volumeMounts";
    let map_keys = "apiVersion binaryData data immutable kind metadata";
    let all = [(spec, job_keys), (pod, pod_keys), (task, task_keys), (inputs, map_keys)];
    for (value, known) in all {
        for key in value.as_object().unwrap().keys() {
            assert!(known.split(' ').any(|known| known == key), "{key}");
        }
    }
    // A pod has the same files as the array, to the byte, and can open it.
    let mounted = scratch.path().join("mounted");
    for item in volume("array")["configMap"]["items"].as_array().unwrap() {
        let (key, path) = (item["key"].as_str().unwrap(), item["path"].as_str().unwrap());
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        assert!(key.chars().all(fits), "{key}");
        let bytes = fs::read(scratch.array().join(path)).unwrap();
        match inputs["data"][key].as_str() {
            Some(text) => assert_eq!(text.as_bytes(), bytes),
            None => {
                assert_eq!(inputs["binaryData"][key], crate::protocol::base64::encode(&bytes));
            }
        }
        write(&mounted, path, &bytes, false).unwrap();
    }
    let there = open(&mounted).unwrap();
    assert_eq!(there.identity, array.identity);
    assert_eq!(there.trials.len(), 12);
}

#[test]
fn t1_what_is_too_large_for_kubernetes_is_told() {
    let scratch = Scratch::new();
    let mut script = script(&scratch);
    let steps: String = (0..5).map(|n| format!("{{put: f{n}, from: 'large-{n}'}}, ")).collect();
    for n in 0..5 {
        fs::write(scratch.path().join(format!("large-{n}")), "x".repeat(201_000)).unwrap();
    }
    script.text = script.text.replace("setup: [{put: f,", &format!("setup: [{steps}{{put: f,"));
    script.file = Orchestrated::parse("e", &script.text).unwrap();
    let target = Target::Kubernetes(kubernetes());
    let error = make(&script, None, &spec(None, target), &scratch.array()).unwrap_err();
    assert!(error.to_string().contains("a Job takes 1000000"), "{error}");
    assert!(!scratch.array().exists());
}
