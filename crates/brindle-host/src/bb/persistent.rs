//! Persistent buffers: made and destroyed by name, used by jobs of their owner and of their group.
//!
//! Invariant: the row of a job that uses a persistent buffer is written under the lock of that buffer. A caller that destroys the
//! buffer reads those rows under the same lock.

use std::ffi::CString;

use brindle_bb::directive::check_name;
use brindle_bb::{Buffer, Goal, PersistentUse, Phase};
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Result};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use super::orchestrator::{Orchestrator, held, no_buffer, refuse_root};
use super::protocol::{Create, Reply};

impl Orchestrator<'_> {
    /// Makes a persistent buffer. An existing buffer of the same owner and size counts as made.
    pub(super) fn create(&self, wanted: &Create) -> Result<Reply> {
        let name = &wanted.name;
        check_name(name).map_err(|why| {
            Fault::new(Code::BadArgument)
                .what("cannot use as the name of a persistent buffer")
                .subject(name.clone())
                .why(why)
                .data("nothing was made")
        })?;
        refuse_root(wanted.uid)?;
        let group = wanted.group.as_deref().map(group_of).transpose()?;
        let lock = self.lock_of(name);
        let _step = held(&lock, name)?;
        let allocate = || {
            let bytes = wanted.bytes.max(1);
            let (serial, slices) = self.slices(&wanted.pool, bytes, None)?;
            self.record(Buffer { persistent: true, group, ..wanted.row(serial, slices) })
        };
        let (version, buffer) = match self.find(name)? {
            Some((version, there)) => {
                self.refuse_other(&there, wanted, group)?;
                (version, there)
            }
            None => allocate()?,
        };
        match self.make_somewhere(&lock, (version, buffer), &allocate) {
            Ok(()) => Ok(Reply::Done(format!("created {name}"))),
            Err(fault) => {
                // No job tears the buffer down: its space goes back at once.
                if let Some((version, half)) = self.find(name)?.filter(|(_, b)| b.phase == Phase::Making) {
                    self.pursue(&lock, version, half, &Goal::Drop)?;
                }
                Err(fault)
            }
        }
    }

    fn refuse_other(&self, there: &Buffer, wanted: &Create, group: Option<u32>) -> Result<()> {
        let bytes = self.rounded(&wanted.pool, wanted.bytes)?;
        let is_same = there.persistent
            && there.uid == wanted.uid
            && there.pool == wanted.pool
            && there.bytes == bytes
            && (group.is_none() || there.group == group);
        if is_same {
            return Ok(());
        }
        let size = format_bytes(there.bytes);
        let why = if there.uid == wanted.uid {
            format!("yours of this name has {size} of pool {}", there.pool)
        } else {
            format!("user {} has one of this name", there.uid)
        };
        Err(Fault::new(Code::NameTaken)
            .what("cannot make the persistent buffer")
            .subject(wanted.name.clone())
            .why(why)
            .data("nothing was made"))
    }

    /// Lets the members of a group use a persistent buffer of this user.
    pub(super) fn share(&self, name: &str, uid: u32, group: &str) -> Result<()> {
        let group = group_of(group)?;
        let lock = self.lock_of(name);
        let _step = held(&lock, name)?;
        let (version, buffer) = self.owned(name, uid, "share")?;
        buffer.refuse_use()?;
        let shared = Buffer { group: Some(group), ..buffer };
        self.store.put(version, &shared)?;
        // Repeated when it was cut off, so the row is no sign that it has been done.
        self.actions.share(&shared)
    }

    /// Destroys a persistent buffer of this user.
    pub(super) fn destroy_persistent(&self, name: &str, uid: u32) -> Result<()> {
        let lock = self.lock_of(name);
        let _step = held(&lock, name)?;
        let (version, buffer) = self.owned(name, uid, "destroy")?;
        self.pursue(&lock, version, buffer, &Goal::Teardown { hurry: false }).map(drop)
    }

    fn owned(&self, name: &str, uid: u32, verb: &str) -> Result<(u64, Buffer)> {
        let found = self.find(name)?.filter(|(_, b)| b.persistent).ok_or_else(|| no_buffer(name))?;
        if found.1.uid == uid {
            return Ok(found);
        }
        Err(not_yours(&format!("cannot {verb} the persistent buffer"), &found.1, uid))
    }

    /// The persistent buffer of this name, if jobs of this user may use it. The caller holds its lock.
    pub(super) fn usable(&self, name: &str, uid: u32, gid: u32) -> Result<PersistentUse> {
        let (_, buffer) = self.find(name)?.filter(|(_, b)| b.persistent).ok_or_else(|| no_buffer(name))?;
        let is_member = buffer.group.is_some_and(|group| group == gid || is_member(uid, gid, group));
        if buffer.uid != uid && !is_member {
            return Err(not_yours("cannot use the persistent buffer", &buffer, uid));
        }
        buffer.refuse_use()?;
        Ok(PersistentUse { name: name.to_owned(), serial: buffer.serial })
    }

    /// Jobs that use a persistent buffer.
    pub(super) fn users_of(&self, serial: u64) -> Result<Vec<String>> {
        let all = self.store.buffers()?.into_iter().map(|(_, job)| job);
        let uses = |job: &Buffer| job.uses.iter().any(|used| used.serial == serial);
        Ok(all.filter(uses).map(|job| job.token).collect())
    }
}

fn not_yours(what: &str, buffer: &Buffer, uid: u32) -> Fault {
    let rights = match buffer.group {
        Some(group) => format!("user {} and group {group}", buffer.uid),
        None => format!("user {}", buffer.uid),
    };
    Fault::new(Code::NotYourBuffer)
        .what(what.to_owned())
        .subject(buffer.token.clone())
        .why(format!("it belongs to {rights}, and user {uid} asks"))
        .data("nothing was changed")
}

/// A group by its name or number.
fn group_of(text: &str) -> Result<u32> {
    let unknown = |why: String| {
        Fault::new(Code::BadArgument)
            .what("no group is called")
            .subject(text.to_owned())
            .why(why)
            .data("nothing was changed")
    };
    match text.parse::<u32>() {
        Ok(0) => Err(unknown("buffers are not shared with the group of root".to_owned())),
        Ok(number) => Ok(number),
        Err(_) => {
            let found = Group::from_name(text).map_err(|e| unknown(e.to_string()))?;
            let group = found.ok_or_else(|| unknown("this host knows no such group".to_owned()))?;
            Ok(group.gid.as_raw())
        }
    }
}

/// Whether a user is in a group, as this host knows it.
fn is_member(uid: u32, gid: u32, group: u32) -> bool {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = CString::new(user.name) else { return false };
    getgrouplist(&name, Gid::from_raw(gid)).is_ok_and(|all| all.contains(&Gid::from_raw(group)))
}

/// The main group of a user; where the host does not know the user, the group of the same number.
pub fn main_group(uid: u32) -> u32 {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.gid.as_raw(),
        _ => uid,
    }
}
