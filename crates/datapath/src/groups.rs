// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that keeps a tree of scheduling groups in force, takes requests over its control
//! socket until it is told to end, and restores all, also when it is killed. A host has one.
//!
//! The socket is `groups.ctl` in the runtime directory (`/run/timewire` for root).

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use timewire_base::Failure;
use timewire_host::groups::{Model, ModelStatus, POLL_INTERVAL, facts};
use timewire_host::journal::{Journal, runtime_dir};
use timewire_host::{HostError, Undo};
use timewire_model::scenario::host::{Group, HostSettings};
use timewire_sys::event;
use timewire_tsn::file::ParseFile;
use timewire_tsn::groups::GroupPlan;

use crate::DatapathError;
use crate::control::{Ask, Server, exchange, is_nobody};

/// What can be asked of the process that keeps the groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case", deny_unknown_fields)]
pub enum GroupRequest {
    /// How are they?
    Show,
    /// Put this tree in force instead, or leave all as it is.
    Switch {
        /// The file as JSON, checked by the one who asks and again by the one who answers.
        file: Json,
    },
    /// Put a member into a group.
    Add {
        /// The group's name.
        group: String,
        /// The member, as in the file.
        member: Json,
    },
    /// Take a process out of its group.
    Remove {
        /// The process.
        pid: u32,
    },
    /// End, and restore all. The answer comes when that is done.
    Stop,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "response", rename_all = "snake_case")]
pub enum GroupResponse {
    /// It was done.
    Done,
    /// How they are.
    Status {
        /// Everything.
        status: Box<ModelStatus>,
    },
    /// It was not done; all is as it was.
    Refused {
        /// Why, and what would be right.
        message: String,
    },
    /// Something is neither as it was nor as it should be.
    LeftChanged {
        /// What, why, and the journal that still holds it.
        message: String,
    },
}

impl Ask for GroupRequest {
    type Answer = GroupResponse;
    fn is_stop(&self) -> bool {
        *self == GroupRequest::Stop
    }
    fn refused(message: String) -> GroupResponse {
        GroupResponse::Refused { message }
    }
}

/// The groups of a host, in force. Dropping them restores all.
pub struct Groups {
    file: HostSettings,
    // Fields drop in this order: members go before the journal.
    model: Model,
    server: Server,
    requests: event::EndRequests,
    journal: Arc<Journal>,
}

impl Groups {
    /// Puts the groups of a file in force.
    ///
    /// **Errors**: the file has none, others are in force, or the host refuses; nothing is changed
    /// then.
    pub fn start(file: HostSettings) -> Result<Groups, DatapathError> {
        let plan = plan(&file)?;
        let socket = socket_path()?;
        if UnixStream::connect(&socket).is_ok() {
            return Err(DatapathError::Invalid(
                "groups are in force already: `timewire group switch FILE` changes them, \
                 `timewire group stop` ends them"
                    .to_owned(),
            ));
        }
        // Before any thread is started, so that all of them leave the signals to us.
        let requests = event::EndRequests::new()
            .map_err(|error| DatapathError::Invalid(format!("cannot wait for signals: {error}")))?;
        let journal = Arc::new(Journal::begin(&format!("scheduling groups of {}", file.name()))?);
        let server = Server::bind_at(&socket)?;
        journal.record(Undo::RemoveFile { path: socket })?;
        let mut model = Model::new(Arc::clone(&journal));
        model.switch(&plan)?;
        Ok(Groups { file, model, server, requests, journal })
    }

    /// How they are.
    pub fn status(&self) -> ModelStatus {
        self.model.status()
    }

    /// Answers requests and follows members until one asks to stop or a signal asks to end; then
    /// restores all.
    ///
    /// **Errors**: windows could not be kept any more, or something could not be restored.
    pub fn serve(mut self) -> Result<(), DatapathError> {
        let look = i64::try_from(POLL_INTERVAL.as_millis()).unwrap_or(i64::MAX);
        let mut failed = None;
        let mut stop = false;
        while !stop && failed.is_none() {
            self.server.wait_for(self.requests.as_fd(), look);
            stop = self.requests.take();
            failed = self.model.follow().err();
            let Groups { file, model, server, .. } = &mut self;
            stop |= server.answer_all(|request| answer(file, model, request));
        }
        let Groups { model, server, journal, .. } = self;
        let finished = model.finish();
        let journal = Arc::into_inner(journal).expect("invariant: the model was the other owner");
        // What the model could not undo is tried once more, and stays in the journal.
        let restore = journal.finish();
        server.has_stopped(&match &restore {
            Ok(()) => GroupResponse::Done,
            Err(error) => GroupResponse::LeftChanged { message: error.to_string() },
        });
        restore?;
        drop(finished);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// What is asked of the host for the groups of a file.
///
/// **Errors**: it has none, or this host cannot do it.
pub fn plan(file: &HostSettings) -> Result<GroupPlan, DatapathError> {
    let group = file.host.groups.as_ref().ok_or_else(|| {
        DatapathError::Invalid(format!(
            "`{}` has no `host.groups`: nothing to put in force",
            file.name()
        ))
    })?;
    Ok(GroupPlan::new(group, &facts()).map_err(HostError::from)?)
}

fn answer(file: &mut HostSettings, model: &mut Model, request: GroupRequest) -> GroupResponse {
    let amend = matches!(request, GroupRequest::Add { .. } | GroupRequest::Remove { .. });
    let wanted = match request {
        GroupRequest::Show => {
            return GroupResponse::Status { status: Box::new(model.status()) };
        }
        GroupRequest::Stop => return GroupResponse::Done,
        GroupRequest::Switch { file } => parse(&file),
        GroupRequest::Add { group, member } => add(file, &group, member),
        GroupRequest::Remove { pid } => remove(file, pid),
    };
    let switched = wanted.and_then(|wanted| {
        let plan = plan(&wanted)?;
        if amend {
            model.amend(&plan)?
        } else {
            model.switch(&plan)?
        }
        Ok(wanted)
    });
    match switched {
        Ok(wanted) => {
            *file = wanted;
            GroupResponse::Done
        }
        Err(error @ DatapathError::Host(HostError::NotUndone { .. })) => {
            GroupResponse::LeftChanged { message: error.to_string() }
        }
        Err(error) => {
            let hint = error.hint().map(|hint| format!("\n  hint: {hint}")).unwrap_or_default();
            GroupResponse::Refused { message: format!("{error}{hint}") }
        }
    }
}

/// A file that came over the socket, or was put together here.
fn parse(file: &Json) -> Result<HostSettings, DatapathError> {
    let text = serde_json::to_string(file).expect("invariant: JSON can be written");
    HostSettings::parse("the new groups", &text).map_err(|errors| {
        // Its lines are nobody's, so only what is wrong is said.
        let list = errors.errors.iter().map(|error| {
            let hint = if error.hint.is_empty() { "" } else { "; " };
            format!("{}: {}{hint}{}", error.key, error.message, error.hint)
        });
        DatapathError::Invalid(list.collect::<Vec<_>>().join("\n"))
    })
}

fn add(file: &HostSettings, group: &str, member: Json) -> Result<HostSettings, DatapathError> {
    let mut json = serde_json::to_value(file).expect("invariant: JSON can be written");
    let Some(found) = find(&mut json["stations"][0]["host"]["groups"], group) else {
        let names = file.host.groups.as_ref().map(Group::all).unwrap_or_default();
        let names: Vec<String> = names.iter().map(|group| group.name.to_string()).collect();
        return Err(DatapathError::Invalid(format!(
            "there is no group `{group}`; there are {}",
            names.join(", ")
        )));
    };
    if let Some(members) = found["members"].as_array_mut() {
        members.push(member);
    }
    parse(&json)
}

fn remove(file: &HostSettings, pid: u32) -> Result<HostSettings, DatapathError> {
    let mut json = serde_json::to_value(file).expect("invariant: JSON can be written");
    if !take_out(&mut json["stations"][0]["host"]["groups"], pid) {
        return Err(DatapathError::Invalid(format!(
            "no member is written as process {pid}; only those can be removed one by one, others \
             by `timewire group switch`"
        )));
    }
    parse(&json)
}

/// The group of this name in a tree.
fn find<'j>(group: &'j mut Json, name: &str) -> Option<&'j mut Json> {
    if group["name"] == name {
        return Some(group);
    }
    let members = group["members"].as_array_mut()?;
    members.iter_mut().find_map(|member| match member["is"].get_mut("group") {
        Some(inner) => find(inner, name),
        None => None,
    })
}

/// Removes a process with this number from a tree; whether it was there.
fn take_out(group: &mut Json, pid: u32) -> bool {
    let Some(members) = group["members"].as_array_mut() else { return false };
    let before = members.len();
    members.retain(|member| member["is"]["pid"] != json!(pid));
    members.len() < before
        || members.iter_mut().any(|member| match member["is"].get_mut("group") {
            Some(inner) => take_out(inner, pid),
            None => false,
        })
}

/// Someone who talks to the process that keeps the groups.
///
/// **Errors**: nobody keeps any, a refusal, or the talk broke off.
pub fn ask(request: &GroupRequest) -> Result<GroupResponse, DatapathError> {
    let path = socket_path()?;
    let failed = |source| DatapathError::Control { instance: "groups".to_owned(), source };
    let stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(error) if is_nobody(&error) => {
            return Err(DatapathError::Invalid(
                "no groups are in force: `timewire group start FILE` puts some in force".to_owned(),
            ));
        }
        Err(error) => return Err(failed(error)),
    };
    match exchange(&stream, request, TIMEOUT).map_err(failed)? {
        GroupResponse::Refused { message } => Err(DatapathError::Refused { message }),
        other => Ok(other),
    }
}

fn socket_path() -> Result<PathBuf, DatapathError> {
    let directory = runtime_dir()?;
    fs::create_dir_all(&directory).map_err(DatapathError::file("create", &directory))?;
    Ok(directory.join("groups.ctl"))
}

/// How long an answer may take; a switch starts programs.
const TIMEOUT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> HostSettings {
        let text = "{timewire: 1, kind: network, name: t, stations: [{name: alpha, host: {groups: \
                    {name: top, policy: sequential, members: [{is: {kind: group, group: \
                    {name: in, policy: priority, \
                    members: [{is: {kind: process, pid: 7}, priority: 1}]}}}]}}}]}";
        HostSettings::parse("t", text).unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn t0_members_are_put_in_and_taken_out_by_name_and_number() {
        let member = json!({"is": {"kind": "process", "pid": 8}, "priority": 2});
        let more = add(&file(), "in", member).unwrap();
        assert_eq!(
            GroupPlan::new(more.host.groups.as_ref().unwrap(), &facts()).unwrap().members().count(),
            2
        );
        assert_eq!(remove(&more, 8).unwrap(), file());
        assert!(remove(&file(), 8).unwrap_err().to_string().starts_with("no member is written as"));
    }

    #[test]
    fn t0_what_cannot_be_put_in_is_said_by_its_key() {
        let member = json!({"is": {"kind": "process", "pid": 7}, "priority": 2});
        let error = add(&file(), "in", member).unwrap_err().to_string();
        assert!(error.contains("members[1].is: process 7 is a member before"), "{error}");
        let error = add(&file(), "out", json!({})).unwrap_err().to_string();
        assert_eq!(error, "there is no group `out`; there are top, in");
        let error =
            add(&file(), "top", json!({"is": {"kind": "process", "pid": 9}, "offset": "1ms"}));
        assert!(error.unwrap_err().to_string().contains("has no offset"));
    }
}
