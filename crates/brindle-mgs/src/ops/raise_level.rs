//! raise_level: stored values may be written in newer forms from now on, because every server reads them.

use brindle_types::{Code, Fault, Result};
use brindle_wire::form::FormatLevel;
use brindle_wire::map::{Map, TargetEntry};
use brindle_wire::mgs::{RaiseLevelReq, RaiseLevelResp};

use crate::Mgs;

/// Raises the format level, if all registered servers read the new one. The level never goes back.
pub(crate) async fn handle(mgs: &Mgs, req: RaiseLevelReq) -> Result<RaiseLevelResp> {
    mgs.check_fs(&req.fs)?;
    let changed = mgs.store.modify(|map| decide(map, req.level)).await?;
    if changed {
        tracing::info!(level = req.level.0, "the format level was raised");
    }
    Ok(RaiseLevelResp { map: mgs.map_now(), changed })
}

/// The map with the level; `None` when it has it.
fn decide(map: &Map, level: FormatLevel) -> Result<Option<Map>> {
    let cannot = || {
        Fault::new(Code::VersionMismatch)
            .what(format!("cannot raise the format level to {} in", level.0))
            .subject(map.fs.to_string())
            .data("nothing was changed")
    };
    if level > FormatLevel::NEWEST {
        return Err(cannot().why(format!("the MGS knows levels up to {}", FormatLevel::NEWEST.0)));
    }
    if level <= map.format_level {
        return Ok(None);
    }
    let old: Vec<&TargetEntry> = map.targets.iter().filter(|t| t.format_level_max < level).collect();
    if !old.is_empty() {
        let why = |t: &&TargetEntry| {
            let name = map.fs.target(t.id);
            format!("{name} on {} reads levels up to {}", t.host(), t.format_level_max.0)
        };
        let fault = old.iter().map(why).fold(cannot(), Fault::why);
        return Err(fault.next("upgrade those servers, then try again"));
    }
    let mut next = map.clone();
    next.version += 1;
    next.format_level = level;
    Ok(Some(next))
}

#[cfg(test)]
mod tests {
    use brindle_types::TargetId;
    use brindle_wire::map::{ReplicaSet, TargetState};

    use super::*;

    /// A file system of an older level.
    fn map(reads: &[u16]) -> Map {
        let entry = |(index, level): (usize, &u16)| TargetEntry {
            id: TargetId::ost(index as u16),
            uuid: [index as u8; 16],
            nids: Vec::new(),
            epoch: 1,
            state: TargetState::Up,
            replicas: ReplicaSet::of(format!("oss{index}")),
            format_level_max: FormatLevel(*level),
        };
        let targets = reads.iter().enumerate().map(entry).collect();
        Map { targets, format_level: FormatLevel(0), ..Map::new("scratch".parse().unwrap(), 1) }
    }

    #[test]
    fn the_level_rises_only_when_every_server_reads_it_and_never_goes_back() {
        let newest = FormatLevel::NEWEST;
        let fault = decide(&map(&[newest.0, 0]), newest).expect_err("one server is old");
        assert_eq!(
            fault.to_string(),
            format!(
                "cannot raise the format level to {} in scratch\
                 \n  why:  scratch-OST0001 on oss1 reads levels up to 0\
                 \n  data: nothing was changed\
                 \n  next: upgrade those servers, then try again\
                 \n  code: E8003 (brindle explain E8003)",
                newest.0
            )
        );
        let raised = decide(&map(&[newest.0]), newest).expect("all read it").expect("changed");
        assert_eq!((raised.format_level, raised.version), (newest, 2));
        assert_eq!(decide(&raised, newest), Ok(None));
        assert_eq!(decide(&raised, FormatLevel(0)), Ok(None), "it does not go back");
        let unknown = FormatLevel(newest.0 + 1);
        assert_eq!(decide(&raised, unknown).expect_err("unknown").code, Code::VersionMismatch);
    }
}
