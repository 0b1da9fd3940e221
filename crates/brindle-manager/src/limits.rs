//! Limits of jobs, users and hosts: the delays that they have caused, and changes, whose effect is shown before they
//! are made.

use brindle_admin::limits::{LimitView, LimitsView};
use brindle_types::{Code, Fault, Result};
use brindle_wire::mds::quota::QuotaOwner;
use brindle_wire::mgs::limit::{LimitAt, LimitChange, LimitOf, LimitRule, refusal};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cluster::Managed;
use crate::names::Names;
use crate::plan::{PlanView, capital, quoted};

/// Longest life of a limit that ends by itself.
const LIFE_MAX_S: u64 = 366 * 86_400;

/// A limit to be made.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitReq {
    /// Jobs; `*` stands for any characters.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// Users, by name or number.
    #[serde(default)]
    pub users: Vec<String>,
    /// Hosts, by name or address; `*` stands for any characters.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// `mdt` or `ost`; none for both.
    pub at: Option<String>,
    /// Requests a second at each target.
    pub iops: Option<u64>,
    /// Bytes of files a second at each target.
    pub bytes_per_s: Option<u64>,
    /// After how many seconds it ends by itself; none for one that stays.
    pub seconds: Option<u64>,
    /// Says what would be, and changes nothing.
    pub dry_run: bool,
}

/// Limits, and what targets have held back.
pub async fn list(managed: &Managed) -> Result<LimitsView> {
    managed.servers.limits(&managed.place()?).await
}

/// A change that can be made.
#[derive(Clone, Debug)]
pub struct Change {
    change: LimitChange,
    command: String,
    request: String,
}

impl Change {
    /// A new limit. `now_s`: seconds since 1970.
    pub async fn add(name: &str, request: &LimitReq, now_s: i64) -> Result<Change> {
        let wrong = |why: &str| refusal(name, why);
        let at = match request.at.as_deref() {
            None => LimitAt::Everywhere,
            Some("mdt") => LimitAt::Mdts,
            Some("ost") => LimitAt::Osts,
            Some(_) => return Err(wrong("it counts at targets of the kind 'mdt' or 'ost', or at all")),
        };
        if request.seconds.is_some_and(|seconds| !(1..=LIFE_MAX_S).contains(&seconds)) {
            return Err(wrong("a limit that ends by itself lives for 1 s to 366 days"));
        }
        let mut of: Vec<LimitOf> = request.jobs.iter().cloned().map(LimitOf::Job).collect();
        for user in &request.users {
            of.push(LimitOf::User(Names::number(QuotaOwner::User, user).await?));
        }
        of.extend(request.hosts.iter().cloned().map(LimitOf::Host));
        let rule = LimitRule {
            name: name.to_owned(),
            of,
            at,
            requests_per_s: request.iops,
            bytes_per_s: request.bytes_per_s,
            ends_s: request.seconds.map(|seconds| now_s.saturating_add_unsigned(seconds)),
        };
        rule.check().map_err(|why| refusal(name, why))?;
        Ok(Change {
            change: LimitChange::Add(rule),
            command: command(name, request),
            request: body(name, request),
        })
    }

    /// No such limit any more.
    pub fn remove(name: &str) -> Change {
        Change {
            change: LimitChange::Remove(name.to_owned()),
            command: format!("brindle limit remove {}", quoted(name)),
            request: format!("POST /api/v1/limits/{name}/remove {{\"dry_run\": false}}"),
        }
    }

    /// Makes the change, or only says what it would do.
    pub async fn make(&self, managed: &Managed, dry_run: bool) -> Result<PlanView> {
        let place = managed.place()?;
        let answer = managed.servers.change_limit(&place, self.change.clone(), dry_run).await?;
        let (would, effects) = match &answer.limit {
            Some(limit) => (self.would(limit, answer.changed), made_effects()),
            None => (
                format!("The limit {} would be removed", answer.name),
                vec!["Requests that it holds go on within a second.".to_owned()],
            ),
        };
        Ok(PlanView {
            target: answer.name,
            action: if answer.limit.is_some() { "limit" } else { "unlimit" }.to_owned(),
            would,
            effects,
            changes: answer.changed,
            command: format!("{} {}", self.command, managed.place_word(&place)),
            request: self.request.clone(),
            task: None,
        })
    }

    fn would(&self, limit: &LimitView, changes: bool) -> String {
        let words = limit.in_words(|uid| uid.to_string());
        match changes {
            true => capital(&format!("{} would be limited to {words}", limit.name)),
            false => format!("{} is like that already: {words}", limit.name),
        }
    }
}

fn made_effects() -> Vec<String> {
    vec![
        "Each job, user and host that is named has this rate of its own, at each target. Servers go by it within a second.".to_owned(),
        "Requests above the rate wait, 4 s at most, and get no error.".to_owned(),
    ]
}

fn command(name: &str, request: &LimitReq) -> String {
    let mut words = vec![format!("brindle limit add {}", quoted(name))];
    for (option, values) in [("job", &request.jobs), ("user", &request.users), ("host", &request.hosts)] {
        if !values.is_empty() {
            words.push(format!("--{option} {}", quoted(&values.join(","))));
        }
    }
    words.extend(request.iops.map(|rate| format!("--iops {rate}")));
    words.extend(request.bytes_per_s.map(|rate| format!("--bytes-per-s {rate}")));
    words.extend(request.at.as_ref().map(|at| format!("--at {at}")));
    words.extend(request.seconds.map(|seconds| format!("--for {seconds}s")));
    words.join(" ")
}

fn body(name: &str, request: &LimitReq) -> String {
    let LimitReq { jobs, users, hosts, at, iops, bytes_per_s, seconds, .. } = request;
    let body = serde_json::json!({
        "jobs": jobs, "users": users, "hosts": hosts, "at": at, "iops": iops, "bytes_per_s": bytes_per_s,
        "seconds": seconds, "dry_run": false,
    });
    format!("POST /api/v1/limits/{name} {body}")
}

/// Refuses a name that is no part of a path.
pub fn checked_name(name: &str) -> Result<&str> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.is_empty() && name.chars().all(is_good) {
        return Ok(name);
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot use the name")
        .subject(name.chars().take(80).collect::<String>())
        .why("it has letters, digits, '.', '_' and '-' only")
        .data("nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn commands_say_the_same_and_bad_limits_are_refused_without_a_server() {
        let asked = LimitReq {
            jobs: vec!["47*".to_owned(), "b".to_owned()],
            iops: Some(40),
            at: Some("ost".to_owned()),
            seconds: Some(60),
            ..LimitReq::default()
        };
        let change = Change::add("slow", &asked, 1_000).await.unwrap();
        assert_eq!(change.command, "brindle limit add slow --job '47*,b' --iops 40 --at ost --for 60s");
        let LimitChange::Add(rule) = &change.change else { panic!("{change:?}") };
        assert_eq!((rule.ends_s, rule.of.len()), (Some(1_060), 2));
        let bad = [
            LimitReq { iops: None, ..asked.clone() },
            LimitReq { iops: Some(0), ..asked.clone() },
            LimitReq { jobs: Vec::new(), ..asked.clone() },
            LimitReq { at: Some("mgt".to_owned()), ..asked.clone() },
            LimitReq { seconds: Some(0), ..asked.clone() },
            LimitReq { seconds: Some(u64::MAX), ..asked.clone() },
            LimitReq { jobs: vec!["a b".to_owned()], ..asked.clone() },
        ];
        for request in bad {
            assert_eq!(Change::add("slow", &request, 1_000).await.unwrap_err().code, Code::BadLimit);
        }
        assert!(checked_name("a/b").is_err() && checked_name("a.b-c_1").is_ok() && checked_name("").is_err());
    }
}
