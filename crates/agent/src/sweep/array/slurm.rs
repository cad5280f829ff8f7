// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scripts of a job array for Slurm. They name no path but that of the program, so that the
//! directory may be moved and may have any name; all options of `sbatch` remain the user's.

use std::path::Path;

use super::{EngineFile, Head, VERSION, invalid, quoted};
use timewire_datapath::DatapathError;

pub(super) const SUBMIT: &str = "submit.sh";

/// What a job array needs to know.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The program `timewire` on the nodes.
    pub program: String,
}

impl Slurm {
    pub(super) fn scripts(
        &self,
        head: &Head,
        at_once: usize,
    ) -> Result<Vec<EngineFile>, DatapathError> {
        if self.program.is_empty() || self.program.contains('\0') {
            return Err(invalid("the program of the tasks has no name"));
        }
        let Head { name, tasks, trials, .. } = head;
        let last = tasks - 1;
        let indices = match at_once {
            all if all >= *tasks => format!("0-{last}"),
            some => format!("0-{last}%{some}"),
        };
        let submit = format!(
            "#!/bin/sh\n\
             # Timewire {VERSION}: {trials} trials of {name} as {tasks} tasks.\n\
             # Options of sbatch may follow: ./submit.sh --partition=long --time=1:00:00\n\
             # Only some tasks: ./submit.sh --array=3,7\n\
             set -eu\n\
             case $0 in */*) CDPATH='' cd -- \"${{0%/*}}\" ;; esac\n\
             mkdir -p logs\n\
             exec sbatch --array={indices} \"$@\" task.sh\n"
        );
        let task = format!(
            "#!/bin/sh\n\
             #SBATCH --job-name={name}\n\
             #SBATCH --output=logs/%A_%a.log\n\
             #SBATCH --open-mode=append\n\
             #SBATCH --requeue\n\
             # Begun again, a task does what is not done.\n\
             set -eu\n\
             program={}\n\
             exec \"$program\" run \"${{SLURM_SUBMIT_DIR:-.}}\" --task \"$SLURM_ARRAY_TASK_ID\"\n",
            quoted(&self.program)
        );
        Ok(vec![
            EngineFile { name: SUBMIT, text: submit, is_program: true },
            EngineFile { name: "task.sh", text: task, is_program: true },
        ])
    }
}

pub(super) fn again(directory: &Path, tasks: &[usize]) -> String {
    let submit = directory.join(SUBMIT);
    format!("{} --array={}", quoted(&submit.to_string_lossy()), ranges(tasks))
}

/// `1,3-5`, of numbers in order.
fn ranges(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_numbers_in_a_row_are_a_range() {
        for (numbers, text) in
            [(&[3][..], "3"), (&[3, 7], "3,7"), (&[0, 1, 2, 5, 8, 9], "0-2,5,8-9")]
        {
            assert_eq!(ranges(numbers), text);
        }
    }
}
