//! The table of all documents that commands print with `-o json`, for their schemas in `docs/reference/schema/`.

use brindle_admin::document::{Document, schema};
use brindle_admin::{
    cluster_file, drain, fsck, hosts, pool, rebalance, space, spare, status, target, upgrade,
};

use crate::{admin, bench, changelog, cluster, dev, explain, find, format, hsm, policy, quota, stripe};

/// A document: its name, and its schema as text.
pub type Entry = (&'static str, String);

fn entry<T: Document>() -> Entry {
    let text = serde_json::to_string_pretty(&schema::<T>()).expect("a schema is plain data");
    (T::NAME, text + "\n")
}

/// All of them.
pub fn all() -> Vec<Entry> {
    [of_clusters(), others()].concat()
}

/// Documents of the manager, burst buffers and clusters.
fn of_clusters() -> Vec<Entry> {
    vec![
        entry::<brindle_manager::alerts::store::AlertsView>(),
        entry::<brindle_manager::api::views::UsersView>(),
        entry::<brindle_manager::api::views::TokensView>(),
        entry::<brindle_manager::api::views::NewTokenView>(),
        entry::<brindle_host::bb::view::BrickPoolsView>(),
        entry::<brindle_host::bb::view::NodesView>(),
        entry::<brindle_host::bb::view::BuffersView>(),
        entry::<brindle_host::bb::view::SimulationView>(),
        entry::<bench::compare::ComparisonView>(),
        entry::<bench::report::RunView>(),
        entry::<cluster_file::ApplyView>(),
        entry::<brindle_admin::restart::RestartView>(),
        entry::<cluster::InitView>(),
        entry::<cluster::backup::BackupView>(),
        entry::<cluster::backup::RestoreView>(),
        entry::<brindle_host::superblocks::SuperblocksView>(),
        entry::<cluster::superblocks::RebuildView>(),
        entry::<brindle_admin::logs::LogView>(),
        entry::<brindle_admin::limits::LimitsView>(),
        entry::<brindle_admin::limits::LimitChanged>(),
        entry::<hosts::NewTokenView>(),
        entry::<cluster::join::JoinView>(),
        entry::<hosts::HostsView>(),
        entry::<spare::SpareView>(),
        entry::<brindle_admin::label::LabelView>(),
        entry::<brindle_admin::rename::RenameView>(),
        entry::<hosts::HostView>(),
        entry::<hosts::HostedView>(),
        entry::<brindle_admin::replica::ReplicaSetView>(),
        entry::<brindle_admin::replica_move::ReplicaMoveView>(),
        entry::<brindle_admin::shared::SharedView>(),
        entry::<brindle_admin::durability::DurabilityView>(),
    ]
}

/// Documents of single machines, of files, and of measurements over a time.
fn others() -> Vec<Entry> {
    vec![
        entry::<brindle_admin::changelog::ChangelogView>(),
        entry::<brindle_admin::changelog::ClearedView>(),
        entry::<brindle_admin::changelog::DeregisteredView>(),
        entry::<brindle_admin::changelog::RegisteredView>(),
        entry::<changelog::show::RecordView>(),
        entry::<dev::status::DevView>(),
        entry::<brindle_host::cluster::HostView>(),
        entry::<brindle_host::cluster::HostsView>(),
        entry::<explain::CodeView>(),
        entry::<explain::CodesView>(),
        entry::<admin::mount_info::FileView>(),
        entry::<find::FindView>(),
        entry::<find::du::DuView>(),
        entry::<format::FormatView>(),
        entry::<space::SpaceView>(),
        entry::<hsm::FilesView>(),
        entry::<hsm::import::ImportView>(),
        entry::<hsm::restore::RestoredView>(),
        entry::<hsm::HsmListView>(),
        entry::<hsm::HsmStatusView>(),
        entry::<brindle_admin::events::EventView>(),
        entry::<brindle_admin::mdt_backup::Backup>(),
        entry::<brindle_admin::mdt_backup::Restored>(),
        entry::<rebalance::Rebalanced>(),
        entry::<upgrade::Upgraded>(),
        entry::<fsck::ReportView>(),
        entry::<policy::PreviewView>(),
        entry::<policy::PolicyStatusView>(),
        entry::<brindle_admin::nodemaps::NodemapsView>(),
        entry::<brindle_admin::nodemaps::NodemapView>(),
        entry::<brindle_admin::nodemaps::NodemapChanged>(),
        entry::<pool::PoolsView>(),
        entry::<quota::QuotasView>(),
        entry::<status::StatusView>(),
        entry::<stripe::StripesView>(),
        entry::<stripe::migrate::MigratedView>(),
        entry::<drain::Drained>(),
        entry::<target::TargetListView>(),
        entry::<brindle_admin::scrub::ScrubsView>(),
        entry::<brindle_admin::top::TopView>(),
        entry::<brindle_admin::why::WhyView>(),
        entry::<brindle_admin::trace::OperationView>(),
        entry::<brindle_admin::trace::SummaryView>(),
        entry::<admin::mount_info::WaitsView>(),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Names in `document!(TYPE, "NAME", VERSION)` below a directory.
    fn declared(dir: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("sources").flatten() {
            let path = entry.path();
            if path.is_dir() {
                declared(&path, names);
            } else {
                let text = std::fs::read_to_string(&path).expect("text");
                let uses = text.split("document!(").skip(1).filter_map(|rest| rest.split('"').nth(1));
                names.extend(uses.filter(|name| name.starts_with("brindle.")).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_document_has_its_schema_here() {
        let crates = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let mut names = BTreeSet::new();
        for name in ["brindle/src", "brindle-admin/src", "brindle-host/src", "brindle-manager/src"] {
            declared(&crates.join(name), &mut names);
        }
        names.remove("brindle.test");
        let listed: BTreeSet<String> = all().into_iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(listed, names);
        assert_eq!(listed.len(), all().len(), "no name is given twice");
    }
}
