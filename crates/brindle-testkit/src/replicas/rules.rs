//! [`Witness`]: the rules that hold at every moment, and the comparison of the members at the end.

use std::collections::BTreeMap;
use std::sync::Arc;

use brindle_kv::KvReader;
use brindle_targets::OwnerLease;
use brindle_wire::mgs::replica::MemberRole;
use bytes::Bytes;
use parking_lot::Mutex;

use super::cluster::SetCluster;
use super::host::SimHost;
use crate::cluster::TARGET_DIR;
use crate::history::History;

/// Interval of the looks.
const LOOK_MS: u64 = 10;
/// Looks at the members' stores, and the pause between two, before they count as different.
const COMPARISONS: usize = 60;
const COMPARE_AGAIN_MS: u64 = 500;
/// Rows that are read at once.
const PAGE: usize = 4_096;

#[derive(Default)]
struct Seen {
    /// The right to answer of the last opening of each host, with its daemon.
    leases: BTreeMap<String, (Arc<SimHost>, Arc<OwnerLease>)>,
    /// The host that has taken each term.
    terms: BTreeMap<u32, String>,
    /// Told terms, and when each was first seen.
    told: BTreeMap<u32, u64>,
}

/// A record of everything that clients saw in a run. It stands outside the cluster, and testifies against it.
pub struct Witness {
    history: History,
    seen: Mutex<Seen>,
}

/// Rows of a member's store, and its last record.
type Rows = (brindle_kv::LogPos, Vec<(Bytes, Bytes)>);

impl Witness {
    /// One that has seen nothing.
    pub fn new(history: History) -> Witness {
        Witness { history, seen: Mutex::default() }
    }

    /// The history of the run.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Looks for ever.
    pub async fn watch(self: Arc<Self>, cluster: SetCluster) {
        let seams = cluster.world().node("driver").seams;
        loop {
            self.look(&cluster);
            seams.sleep_ms(LOOK_MS).await;
        }
    }

    fn look(&self, cluster: &SetCluster) {
        let now_ns = self.history.now_ns();
        let mut seen = self.seen.lock();
        let mut holders = Vec::new();
        for name in cluster.hosts() {
            let Some(host) = cluster.host(&name) else { continue };
            for opening in host.take_openings() {
                let before = opening.term.and_then(|term| seen.terms.insert(term, name.clone()));
                if let (Some(term), Some(other)) = (opening.term, before) {
                    let text = format!("R3: {name} has opened under term {term}, as {other} had");
                    self.history.violation(text);
                }
                seen.leases.insert(name.clone(), (host.clone(), opening.lease));
            }
            if let Some(set) = host.set() {
                seen.told.entry(set.term).or_insert(now_ns);
            }
            let holds =
                |(of, lease): &(Arc<SimHost>, Arc<OwnerLease>)| Arc::ptr_eq(of, &host) && lease.holds();
            if seen.leases.get(&name).is_some_and(holds) {
                holders.push(name);
            }
        }
        if holders.len() > 1 {
            self.history.violation(format!("R2: {} have the right to answer at once", holders.join(" and ")));
        }
    }

    /// The first rise of the told term since a moment: what was acknowledged then, and not synced before the rise, may be lost.
    pub fn term_rose_at(&self, since_ns: u64) -> Option<u64> {
        let seen = self.seen.lock();
        let first = seen.told.keys().find(|term| **term != 0).copied();
        let rises = seen.told.iter().filter(|(term, at_ns)| Some(**term) > first && **at_ns >= since_ns);
        rises.map(|(_, at_ns)| *at_ns).min()
    }

    /// Without a power cut nothing that was acknowledged can be gone, and nobody may be told so.
    pub fn no_term_has_risen(&self) {
        let told: Vec<u32> = self.seen.lock().told.keys().filter(|term| **term != 0).copied().collect();
        if told.len() > 1 {
            self.history.violation(format!("R7: clients were told {told:?} without any power cut"));
        }
    }

    /// Compares the stores of all members in sync, once nothing changes any more.
    pub async fn compare_members(&self, cluster: &SetCluster) {
        let seams = cluster.world().node("driver").seams;
        let mut different = String::new();
        for _ in 0..COMPARISONS {
            match self.compared(cluster) {
                Ok(()) => return,
                Err(why) => different = why,
            }
            // Records may be on their way.
            seams.sleep_ms(COMPARE_AGAIN_MS).await;
        }
        self.history.violation(format!("R4: {different}"));
    }

    fn compared(&self, cluster: &SetCluster) -> Result<(), String> {
        let set = cluster.set().ok_or("no host knows the set")?;
        let members = set.members.iter().filter(|member| member.role == MemberRole::InSync);
        let mut first: Option<(&str, Rows)> = None;
        for member in members {
            let rows = rows(cluster, &member.host).map_err(|why| format!("{}: {why}", member.host))?;
            let Some((host, (at, expected))) = &first else {
                first = Some((&member.host, rows));
                continue;
            };
            if *at != rows.0 {
                return Err(format!("{host} ends with record {at}, {} with {}", member.host, rows.0));
            }
            if let Some(key) = difference(expected, &rows.1) {
                return Err(format!("{host} and {} differ in row {key:?} at record {at}", member.host));
            }
        }
        Ok(())
    }
}

/// First key whose rows differ.
fn difference(one: &[(Bytes, Bytes)], other: &[(Bytes, Bytes)]) -> Option<Bytes> {
    let unequal = one.iter().zip(other).find(|(a, b)| a != b).map(|(a, b)| a.0.clone().min(b.0.clone()));
    let longer = if one.len() > other.len() { one } else { other };
    unequal.or_else(|| longer.get(one.len().min(other.len())).map(|row| row.0.clone()))
}

fn rows(cluster: &SetCluster, host: &str) -> Result<Rows, String> {
    let disk = cluster.world().disk(host);
    let reader = KvReader::open_read_only(&disk, &brindle_mds::config::store_dir(TARGET_DIR))
        .map_err(|fault| fault.to_string())?;
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    let mut start = Vec::new();
    loop {
        let page = reader.scan(&start, None, PAGE).map_err(|fault| fault.to_string())?;
        let Some((last, _)) = page.last() else { break };
        start = [&last[..], &[0]].concat();
        all.extend(page);
    }
    Ok((reader.report().last, all))
}
