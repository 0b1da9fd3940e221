//! What users ask of a layout, made definite or refused with the nearest value that is possible.

use brindle_types::layout::{
    COMPONENTS_MAX, ComponentPolicy, EOF, LayoutPolicy, STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT_BYTES,
    STRIPE_SIZE_MAX_BYTES, STRIPE_SIZE_UNIT_BYTES, StripePolicy,
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
    let size_bytes = own.size_bytes.or(default.size_bytes);
    if !own.osts.is_empty() {
        return StripePolicy { size_bytes, ..own.clone() };
    }
    // Certain OSTs are a choice of count and start.
    let chooses = own.count.is_some() || own.start_ost.is_some();
    StripePolicy {
        count: own.count.or(default.count),
        size_bytes,
        start_ost: own.start_ost.or(default.start_ost),
        osts: if chooses { Vec::new() } else { default.osts.clone() },
    }
}

/// `own` with what it leaves out taken from `default`. Components are one wish: they are inherited whole, and only by who
/// asks for nothing.
pub fn inherit_layout(own: &LayoutPolicy, default: &LayoutPolicy) -> LayoutPolicy {
    if !own.components.is_empty() {
        return own.clone();
    }
    if own.stripe == StripePolicy::default() {
        return default.clone();
    }
    inherit(&own.stripe, &default.stripe).into()
}

/// One component of a definite layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// First byte in the file.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// As it was asked for, with what was inherited.
    pub asked: StripePolicy,
    /// Stripe size in bytes.
    pub stripe_size_bytes: u32,
}

/// Refuses a layout that a file system with these OSTs cannot have, with `BadStripe` and the nearest value that it can.
pub fn check_policy(policy: &LayoutPolicy, osts: &[u16]) -> Result<(), Fault> {
    plan(policy)?.iter().try_for_each(|part| normalise(&part.asked, osts).map(drop))
}

/// The components of a layout; refuses what no file system can have. Count and stripe size that a component leaves out
/// are those of the component before it.
pub fn plan(policy: &LayoutPolicy) -> Result<Vec<Planned>, Fault> {
    let whole = [ComponentPolicy { end_bytes: EOF, stripe: policy.stripe.clone() }];
    let parts = if policy.components.is_empty() { &whole } else { &policy.components[..] };
    if parts.len() > COMPONENTS_MAX {
        let why = format!("a file has at most {COMPONENTS_MAX} components");
        return Err(refuse("component count", parts.len() as i64, why, COMPONENTS_MAX as i64));
    }
    let mut planned: Vec<Planned> = Vec::with_capacity(parts.len());
    for (n, part) in parts.iter().enumerate() {
        let start = planned.last().map_or(0, |before| before.end);
        check_end(start, part.end_bytes, n + 1 == parts.len())?;
        let before = planned.last().map(|before| &before.asked);
        let asked = match before {
            Some(before) => {
                inherit(&part.stripe, &StripePolicy { start_ost: None, osts: Vec::new(), ..before.clone() })
            }
            None => part.stripe.clone(),
        };
        let stripe_size_bytes = size(&asked)?;
        planned.push(Planned { start, end: part.end_bytes, asked, stripe_size_bytes });
    }
    Ok(planned)
}

/// Whether a component may end there.
fn check_end(start: u64, end: u64, last: bool) -> Result<(), Fault> {
    let unit = u64::from(STRIPE_SIZE_UNIT_BYTES);
    let refuse = |why: String, next: String| {
        let subject =
            if end == EOF { "a component".to_owned() } else { format!("a component that ends at {end}") };
        Err(Fault::new(Code::BadStripe).what("cannot lay out").subject(subject).why(why).next(next))
    };
    match (end == EOF, last) {
        (true, true) => Ok(()),
        (true, false) => refuse(
            "it reaches to the end of the file, and another one follows".into(),
            "leave out what follows, or give it an end".into(),
        ),
        (false, true) => refuse(
            "the last component must reach to the end of the file".into(),
            "add a last one: -E -1".into(),
        ),
        (false, false) if end <= start => {
            let nearest = start.saturating_add(unit) / unit * unit;
            refuse(format!("it begins at {start}"), format!("the nearest possible end is {nearest}"))
        }
        (false, false) if !end.is_multiple_of(unit) => {
            let nearest = (end.saturating_add(unit / 2) / unit * unit).max(start + unit);
            refuse(
                format!("an end is a multiple of {unit} bytes (64 KiB)"),
                format!("the nearest possible end is {nearest}"),
            )
        }
        (false, false) => Ok(()),
    }
}

/// What files get where nobody has chosen: one stripe while they are small, more as they grow.
pub fn progressive() -> LayoutPolicy {
    let part = |end_bytes, count| {
        let stripe = StripePolicy { count: Some(count), ..StripePolicy::default() };
        ComponentPolicy { end_bytes, stripe }
    };
    let components = vec![part(64 << 20, 1), part(1 << 30, 4), part(EOF, -1)];
    LayoutPolicy { stripe: StripePolicy::default(), components }
}

/// Makes a policy definite for a file system with these OSTs (indices, in any order), or refuses it with
/// `BadStripe` and the nearest value that is possible.
pub fn normalise(policy: &StripePolicy, osts: &[u16]) -> Result<Striping, Fault> {
    listed(policy, osts)?;
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

/// OSTs that were named one by one.
fn listed(policy: &StripePolicy, osts: &[u16]) -> Result<(), Fault> {
    let list = &policy.osts;
    for (n, ost) in list.iter().enumerate() {
        if list[..n].contains(ost) {
            return Err(refuse("OST", (*ost).into(), "it is named twice".into(), (*ost).into()));
        }
        known("OST", (*ost).into(), osts)?;
    }
    match policy.count.filter(|n| !list.is_empty() && *n != 0 && *n != list.len() as i32) {
        Some(n) => {
            let (len, why) = (list.len() as i64, format!("{} OSTs are named", list.len()));
            Err(refuse("stripe count", n.into(), why, len))
        }
        None => Ok(()),
    }
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
    known("start OST", asked, osts).map(Some)
}

/// An OST that was asked for by its index.
fn known(field: &str, asked: i64, osts: &[u16]) -> Result<u16, Fault> {
    if let Some(found) = osts.iter().find(|o| i64::from(**o) == asked) {
        return Ok(*found);
    }
    match osts.iter().min_by_key(|o| ((i64::from(**o) - asked).abs(), **o)) {
        Some(nearest) => {
            Err(refuse(field, asked, format!("there is no OST of index {asked}"), (*nearest).into()))
        }
        None => Err(Fault::new(Code::BadStripe).why("the file system has no OST")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(count: i32, size_bytes: u32, start_ost: i32) -> StripePolicy {
        StripePolicy {
            count: Some(count),
            size_bytes: Some(size_bytes),
            start_ost: Some(start_ost),
            osts: Vec::new(),
        }
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

    fn parts(of: &[(u64, Option<i32>)]) -> LayoutPolicy {
        let part = |(end_bytes, count): &(u64, Option<i32>)| ComponentPolicy {
            end_bytes: *end_bytes,
            stripe: StripePolicy { count: *count, ..Default::default() },
        };
        LayoutPolicy { components: of.iter().map(part).collect(), ..Default::default() }
    }

    #[test]
    fn components_follow_each_other_to_the_end() {
        let unit = u64::from(STRIPE_SIZE_UNIT_BYTES);
        let osts = [0, 1, 2, 3];
        let good = plan(&parts(&[(unit, Some(1)), (4 * unit, Some(2)), (EOF, None)])).expect("good");
        let shape: Vec<_> = good.iter().map(|p| (p.start, p.end, p.asked.count)).collect();
        assert_eq!(shape, [(0, unit, Some(1)), (unit, 4 * unit, Some(2)), (4 * unit, EOF, Some(2))]);
        assert_eq!(plan(&policy(2, 0, 3).into()).expect("plain")[0].asked.start_ost, Some(3));
        assert_eq!(check_policy(&progressive(), &osts), Ok(()));

        let next = |of: &[(u64, Option<i32>)]| {
            check_policy(&parts(of), &osts).expect_err("refused").next.into_owned()
        };
        assert_eq!(next(&[(unit, None)]), "add a last one: -E -1");
        assert_eq!(next(&[(EOF, None), (EOF, None)]), "leave out what follows, or give it an end");
        assert_eq!(next(&[(100_000, None), (EOF, None)]), "the nearest possible end is 131072");
        assert_eq!(
            next(&[(2 * unit, None), (unit, None), (EOF, None)]),
            "the nearest possible end is 196608"
        );
        assert_eq!(next(&[(unit, Some(9)), (EOF, None)]), "the nearest possible stripe count is 4");
        assert_eq!(next(&[(EOF, None); 33]), "the nearest possible component count is 32");
    }

    #[test]
    fn components_are_inherited_whole_or_not_at_all() {
        let composite = parts(&[(1 << 20, None), (EOF, Some(2))]);
        let own: LayoutPolicy = policy(4, 65536, 1).into();
        assert_eq!(inherit_layout(&LayoutPolicy::default(), &composite), composite);
        assert_eq!(inherit_layout(&composite, &own), composite);
        let count: LayoutPolicy = StripePolicy { count: Some(2), ..Default::default() }.into();
        assert_eq!(inherit_layout(&count, &own), policy(2, 65536, 1).into());
        assert_eq!(inherit_layout(&count, &composite), count);
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
        let list = |osts: &[u16]| StripePolicy { osts: osts.to_vec(), ..Default::default() };
        assert_eq!(next(list(&[1, 7])), "the nearest possible OST is 3");
        assert!(normalise(&list(&[2, 2]), &[2]).is_err());
        assert_eq!(
            next(StripePolicy { count: Some(3), ..list(&[3, 1]) }),
            "the nearest possible stripe count is 2"
        );
        assert!(normalise(&list(&[3, 1]), &[0, 1, 2, 3]).is_ok());
        assert_eq!(inherit(&list(&[1]), &policy(4, 65536, 2)).osts, [1]);
        assert_eq!(inherit(&policy(4, 65536, 2), &list(&[1])).osts, [0; 0]);
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
