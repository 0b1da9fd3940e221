//! What users ask of a layout, made definite or refused with the nearest value that is possible.

use brindle_types::layout::{
    STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT_BYTES, STRIPE_SIZE_MAX_BYTES, STRIPE_SIZE_UNIT_BYTES, StripePolicy,
};
use brindle_types::{Code, Fault};

/// Stripes of a file where nobody chose.
pub const STRIPE_COUNT_DEFAULT: u32 = 1;

/// How many OSTs a file is striped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeCount {
    /// This many.
    Exactly(u32),
    /// All that can take new files when the file is created.
    All,
}

/// A definite policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Number of stripes.
    pub count: StripeCount,
    /// Stripe size in bytes.
    pub size_bytes: u32,
    /// First OST, where one was chosen.
    pub start_ost: Option<u16>,
}

/// `own` with what it leaves out taken from `default` (the directory's).
pub fn inherit(own: &StripePolicy, default: &StripePolicy) -> StripePolicy {
    StripePolicy {
        count: own.count.or(default.count),
        size_bytes: own.size_bytes.or(default.size_bytes),
        start_ost: own.start_ost.or(default.start_ost),
    }
}

/// Makes a policy definite for a file system with these OSTs (indices, in any order), or refuses it with
/// `BadStripe` and the nearest value that is possible.
pub fn normalise(policy: &StripePolicy, osts: &[u16]) -> Result<Striping, Fault> {
    Ok(Striping {
        count: count(policy, osts.len())?,
        size_bytes: size(policy)?,
        start_ost: start(policy, osts)?,
    })
}

fn refuse(field: &str, asked: i64, why: String, nearest: i64) -> Fault {
    Fault::new(Code::BadStripe)
        .what("cannot stripe with")
        .subject(format!("{field} {asked}"))
        .why(why)
        .next(format!("the nearest possible {field} is {nearest}"))
}

fn count(policy: &StripePolicy, ost_count: usize) -> Result<StripeCount, Fault> {
    let most = (ost_count as i64).min(i64::from(STRIPE_COUNT_MAX));
    match policy.count.unwrap_or(0) {
        -1 => Ok(StripeCount::All),
        0 => Ok(StripeCount::Exactly(STRIPE_COUNT_DEFAULT)),
        n if n < 0 => Err(refuse(
            "stripe count",
            n.into(),
            "a count is 1 or more, 0 for the default, -1 for all".into(),
            1,
        )),
        n if i64::from(n) > most => {
            let why = if most == i64::from(STRIPE_COUNT_MAX) {
                format!("a file has at most {STRIPE_COUNT_MAX} stripes")
            } else {
                format!("the file system has {ost_count} OSTs")
            };
            Err(refuse("stripe count", n.into(), why, most))
        }
        n => Ok(StripeCount::Exactly(n.unsigned_abs())),
    }
}

fn size(policy: &StripePolicy) -> Result<u32, Fault> {
    let asked = match policy.size_bytes.unwrap_or(0) {
        0 => return Ok(STRIPE_SIZE_DEFAULT_BYTES),
        n => n,
    };
    let refuse = |why: String, nearest: u32| Err(refuse("stripe size", asked.into(), why, nearest.into()));
    if asked > STRIPE_SIZE_MAX_BYTES {
        return refuse(format!("a stripe has at most {STRIPE_SIZE_MAX_BYTES} bytes"), STRIPE_SIZE_MAX_BYTES);
    }
    if !asked.is_multiple_of(STRIPE_SIZE_UNIT_BYTES) {
        let units = (asked + STRIPE_SIZE_UNIT_BYTES / 2) / STRIPE_SIZE_UNIT_BYTES;
        let nearest = units.max(1) * STRIPE_SIZE_UNIT_BYTES;
        return refuse(
            format!("a stripe size is a multiple of {STRIPE_SIZE_UNIT_BYTES} bytes (64 KiB)"),
            nearest,
        );
    }
    Ok(asked)
}

fn start(policy: &StripePolicy, osts: &[u16]) -> Result<Option<u16>, Fault> {
    let asked = match policy.start_ost.unwrap_or(-1) {
        -1 => return Ok(None),
        n => i64::from(n),
    };
    if let Some(found) = osts.iter().find(|o| i64::from(**o) == asked) {
        return Ok(Some(*found));
    }
    match osts.iter().min_by_key(|o| ((i64::from(**o) - asked).abs(), **o)) {
        Some(nearest) => {
            Err(refuse("start OST", asked, format!("there is no OST of index {asked}"), (*nearest).into()))
        }
        None => Err(Fault::new(Code::BadStripe).why("the file system has no OST")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(count: i32, size_bytes: u32, start_ost: i32) -> StripePolicy {
        StripePolicy { count: Some(count), size_bytes: Some(size_bytes), start_ost: Some(start_ost) }
    }

    #[test]
    fn defaults_and_good_values() {
        let s = normalise(&StripePolicy::default(), &[0, 1]).expect("defaults");
        assert_eq!(s, Striping { count: StripeCount::Exactly(1), size_bytes: 1 << 20, start_ost: None });
        let s = normalise(&policy(-1, 65536, 7), &[3, 7]).expect("good");
        assert_eq!(s, Striping { count: StripeCount::All, size_bytes: 65536, start_ost: Some(7) });
        let own = StripePolicy { count: Some(2), ..Default::default() };
        assert_eq!(inherit(&own, &policy(4, 65536, 1)), policy(2, 65536, 1));
    }

    #[test]
    fn refusals_name_the_nearest_value() {
        let next = |p: StripePolicy| normalise(&p, &[0, 1, 2, 3]).expect_err("refused").next.into_owned();
        assert_eq!(next(policy(9, 0, -1)), "the nearest possible stripe count is 4");
        assert_eq!(next(policy(-7, 0, -1)), "the nearest possible stripe count is 1");
        assert_eq!(next(policy(1, 100_000, -1)), "the nearest possible stripe size is 131072");
        assert_eq!(next(policy(1, 1, -1)), "the nearest possible stripe size is 65536");
        assert_eq!(next(policy(1, u32::MAX, -1)), "the nearest possible stripe size is 1073741824");
        assert_eq!(next(policy(1, 0, 12)), "the nearest possible start OST is 3");
        assert_eq!(next(policy(1, 0, -9)), "the nearest possible start OST is 0");
        let all: Vec<u16> = (0..3000).collect();
        let fault = normalise(&policy(2500, 0, -1), &all).expect_err("refused");
        assert_eq!(
            fault.to_string(),
            "cannot stripe with stripe count 2500\
             \n  why:  a file has at most 2000 stripes\
             \n  next: the nearest possible stripe count is 2000\
             \n  code: E3026 (brindle explain E3026)"
        );
    }
}
