//! `nrs_tbf_rule` and `nrs_policies` of Lustre's network request scheduler: limits, in Lustre's place and text.

use brindle_admin::limits::parse_tbf;
use brindle_types::{Code, Fault, Result};
use brindle_wire::mgs::limit::{LimitAt, LimitChange};

use super::MgsArgs;
use crate::admin::ask::servers;
use crate::admin::place::one;
use crate::format::runtime;

/// A setting of the scheduler.
#[derive(Debug, PartialEq, Eq)]
pub enum Setting {
    /// A change of the limits.
    Limit(LimitChange),
    /// The policy that is in force always.
    InForce,
}

/// The setting, if a parameter is one of the scheduler's: `ost.OSS.ost_io.nrs_tbf_rule`, `mds.MDS.mdt.nrs_policies`.
pub fn setting(parameter: &str, value: &str) -> Option<Result<Setting>> {
    let parts: Vec<&str> = parameter.trim_matches(['/', '.']).split(['.', '/']).collect();
    let [kind, _, _, name] = parts[..] else { return None };
    let at = match kind {
        "ost" => LimitAt::Osts,
        "mds" => LimitAt::Mdts,
        _ => return None,
    };
    let refused = |why: String, next: &'static str| {
        let fault = Fault::new(Code::BadLimit).what("cannot set").subject(parameter.to_owned());
        Err(fault.why(why).data("nothing was changed").next(next))
    };
    match name {
        "nrs_tbf_rule" => Some(match parse_tbf(value.trim_matches('"'), at) {
            Ok(change) => Ok(Setting::Limit(change)),
            Err(why) => refused(why, "the same in Brindle's words: brindle limit add --help"),
        }),
        "nrs_policies" if value.trim_matches('"').starts_with("tbf") => Some(Ok(Setting::InForce)),
        "nrs_policies" => Some(refused(
            format!(
                "'{value}' is no policy of Brindle: jobs take turns, and limits count always, as under tbf"
            ),
            "servers that are to serve requests as they come: fair-share = \"off\" in serve.toml",
        )),
        _ => None,
    }
}

/// Carries a setting out.
pub fn apply(mgs: &MgsArgs, setting: Setting) -> Result<()> {
    let Setting::Limit(change) = setting else { return Ok(()) };
    let place = one(&mgs.place_args())?;
    runtime()?.block_on(async { servers().change_limit(&place, change, false).await }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedulers_parameters_are_known_and_others_are_not() {
        let rule = "start a jobid={dd.0} rate=5";
        for (parameter, at) in [
            ("ost.OSS.ost_io.nrs_tbf_rule", LimitAt::Osts),
            ("ost/OSS/ost/nrs_tbf_rule", LimitAt::Osts),
            ("mds.MDS.mdt.nrs_tbf_rule", LimitAt::Mdts),
        ] {
            match setting(parameter, rule) {
                Some(Ok(Setting::Limit(LimitChange::Add(rule)))) => assert_eq!(rule.at, at),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(setting("ost.OSS.ost_io.nrs_policies", "tbf jobid"), Some(Ok(Setting::InForce))));
        assert!(matches!(setting("ost.OSS.ost_io.nrs_policies", "fifo"), Some(Err(_))));
        assert!(matches!(setting("ost.OSS.ost_io.nrs_tbf_rule", "start a"), Some(Err(_))));
        assert!(setting("obdfilter.*.no_create", "1").is_none());
        assert!(setting("mdt.*.x.nrs_tbf_rule", rule).is_none());
    }
}
