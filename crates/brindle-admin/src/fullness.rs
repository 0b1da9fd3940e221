//! Thresholds of a full target: a warning long before, a problem when the target takes nothing new.

use brindle_layout::HIGH_WATER_PERCENT_DEFAULT;
use brindle_types::units::format_bytes;
use brindle_types::{Code, Fault, Role};
use brindle_wire::mds::session::TargetInfoResp;

/// Percentage from which on there is a warning.
pub const WARN_PERCENT: u64 = 85;

/// Verdict on the fullness of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fullness {
    /// The target has room.
    Fine,
    /// The target fills up; nothing is refused yet.
    FillsUp(Fault),
    /// The target takes nothing new.
    AboveMark(Fault),
}

/// The high-water mark that an MDT uses.
pub fn mark(mdt: Option<&TargetInfoResp>) -> u64 {
    mdt.and_then(|info| counter(info, "high_water_percent")).unwrap_or(HIGH_WATER_PERCENT_DEFAULT)
}

fn counter(info: &TargetInfoResp, wanted: &str) -> Option<u64> {
    info.counters.iter().find(|(name, _)| name == wanted).map(|(_, n)| *n)
}

/// Used share of a target, with the text that describes it.
struct Used {
    percent: f64,
    what: String,
}

impl Used {
    fn of(free: u64, total: u64, what: impl Fn() -> String) -> Used {
        let used = total.saturating_sub(free);
        let percent = if total == 0 { 0.0 } else { used as f64 * 100.0 / total as f64 };
        Used { percent, what: what() }
    }
}

/// Fullness of a target: by bytes or by objects, whichever is worse.
pub fn of(role: Role, name: &str, info: &TargetInfoResp, mark_percent: u64) -> Fullness {
    let bytes = Used::of(info.available_bytes, info.total_bytes, || {
        format!("{} of {} left", format_bytes(info.available_bytes), format_bytes(info.total_bytes))
    });
    let total = counter(info, "total_inodes").unwrap_or(0);
    let free = counter(info, "free_inodes").unwrap_or(0);
    let objects = Used::of(free, total, || format!("{free} of {total} objects left"));
    let worse = if objects.percent > bytes.percent { objects } else { bytes };
    let used = format!("{:.1} % are used: {}", worse.percent, worse.what);
    let told = |code: Code, what: &'static str| {
        Fault::new(code).what(what).subject(name.to_owned()).why(used.clone())
    };
    match role {
        Role::Mgt => Fullness::Fine,
        Role::Mdt if worse.percent >= WARN_PERCENT as f64 => Fullness::FillsUp(
            told(Code::MdtFillsUp, "fills up:")
                .data("nothing is refused yet")
                .next("remove files, or give the MDT a larger disk; removing always works"),
        ),
        Role::Ost if worse.percent > mark_percent as f64 => Fullness::AboveMark(
            told(Code::OstAboveMark, "takes no new objects:")
                .why(format!("the high-water mark is {mark_percent} %"))
                .data("what lies on it is safe, and can be read and changed; new files go to other OSTs while they have room")
                .next("add an OST: brindle target add; or remove files that lie on it"),
        ),
        Role::Ost if worse.percent >= WARN_PERCENT as f64 => Fullness::FillsUp(
            told(Code::OstFillsUp, "fills up:")
                .why(format!("from {mark_percent} % on it takes no new objects"))
                .data("nothing is refused yet")
                .next("add an OST: brindle target add; or remove files"),
        ),
        Role::Mdt | Role::Ost => Fullness::Fine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(available_mib: u64, objects: Option<(u64, u64)>) -> TargetInfoResp {
        let counters = objects.map(|(free, total)| {
            [("free_inodes", free), ("total_inodes", total)].map(|(name, n)| (name.to_owned(), n)).to_vec()
        });
        TargetInfoResp {
            name: "dev-OST0001".to_owned(),
            version: String::new(),
            term: 1,
            state: "active".to_owned(),
            problems: Vec::new(),
            clients: 0,
            total_bytes: 1000 << 20,
            available_bytes: available_mib << 20,
            counters: counters.unwrap_or_default(),
            releases: Vec::new(),
        }
    }

    #[test]
    fn a_target_is_told_of_long_before_it_is_full() {
        let ost = |info: &TargetInfoResp| of(Role::Ost, "dev-OST0001", info, 97);
        assert_eq!(ost(&info(151, None)), Fullness::Fine);
        assert!(matches!(ost(&info(150, None)), Fullness::FillsUp(_)));
        assert!(matches!(ost(&info(30, None)), Fullness::FillsUp(_)));
        let Fullness::AboveMark(fault) = ost(&info(29, None)) else { panic!("above the mark") };
        assert_eq!(
            fault.to_string(),
            "takes no new objects: dev-OST0001\
             \n  why:  97.1 % are used: 29.0 MiB of 1000.0 MiB left\
             \n  why:  the high-water mark is 97 %\
             \n  data: what lies on it is safe, and can be read and changed; new files go to other OSTs while they have room\
             \n  next: add an OST: brindle target add; or remove files that lie on it\
             \n  code: E4011 (brindle explain E4011)"
        );
        let Fullness::FillsUp(fault) = ost(&info(900, Some((10, 100)))) else { panic!("few objects left") };
        assert_eq!(fault.why[0], "90.0 % are used: 10 of 100 objects left");
        assert_eq!(of(Role::Mgt, "dev-MGT0000", &info(0, None), 97), Fullness::Fine);
        assert!(matches!(of(Role::Mdt, "dev-MDT0000", &info(1, None), 97), Fullness::FillsUp(_)));
        assert_eq!(mark(None), 97);
    }
}
