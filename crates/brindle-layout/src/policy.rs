//! A user's wish for a layout, made definite, or refused with the nearest possible value.

use brindle_types::layout::{
    COMPONENTS_MAX, ComponentPolicy, EOF, LayoutPolicy, STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT_BYTES,
    STRIPE_SIZE_MAX_BYTES, STRIPE_SIZE_UNIT_BYTES, StripePolicy,
};
use std::collections::BTreeMap;
use std::fmt::Display;

use brindle_types::{Code, Fault, PoolName};

/// Default number of stripes of a file.
pub const STRIPE_COUNT_DEFAULT: u32 = 1;

/// Number of OSTs that a file is striped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StripeCount {
    /// A number of stripes.
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

/// The pools of a file system: indices of their OSTs.
pub type Pools = BTreeMap<PoolName, Vec<u16>>;

/// `own`, with missing settings taken from `default` (the directory's). A policy that names OSTs by index drops an
/// inherited pool, and a policy that names a pool drops inherited indices.
pub fn inherit(own: &StripePolicy, default: &StripePolicy) -> StripePolicy {
    let size_bytes = own.size_bytes.or(default.size_bytes);
    if !own.osts.is_empty() {
        return StripePolicy { size_bytes, ..own.clone() };
    }
    let elsewhere = own.pool.is_some() && own.pool != default.pool;
    // Certain OSTs are a choice of count and start.
    let chooses = own.count.is_some() || own.start_ost.is_some() || elsewhere;
    let by_index = own.start_ost.is_some_and(|start| start != -1);
    StripePolicy {
        count: own.count.or(default.count),
        size_bytes,
        start_ost: own.start_ost.or(default.start_ost.filter(|_| !elsewhere)),
        osts: if chooses { Vec::new() } else { default.osts.clone() },
        pool: own.pool.clone().or(default.pool.clone().filter(|_| !by_index)),
    }
}

/// `own`, with missing settings taken from `default`. Components are inherited all together, and only by a policy that
/// asks for nothing, or only for a pool. That pool is then the pool of all of them.
pub fn inherit_layout(own: &LayoutPolicy, default: &LayoutPolicy) -> LayoutPolicy {
    if !own.components.is_empty() {
        return in_pool_of(own, default);
    }
    if own.stripe == StripePolicy::default() {
        return default.clone();
    }
    let only_pool = StripePolicy { pool: own.stripe.pool.clone(), ..StripePolicy::default() };
    if own.stripe == only_pool && !default.components.is_empty() {
        let mut components = default.components.clone();
        components.iter_mut().for_each(|part| part.stripe = inherit(&only_pool, &part.stripe));
        return LayoutPolicy { components, ..LayoutPolicy::default() };
    }
    inherit(&own.stripe, &default.stripe).into()
}

/// `own`, and where it says nothing of a pool, the pool of `default`: that of its first component.
pub fn in_pool_of(own: &LayoutPolicy, default: &LayoutPolicy) -> LayoutPolicy {
    let mut own = own.clone();
    let from = default.components.first().map_or(&default.stripe, |part| &part.stripe);
    let of = own.components.first_mut().map_or(&mut own.stripe, |part| &mut part.stripe);
    let by_index = !of.osts.is_empty() || of.start_ost.is_some_and(|start| start != -1);
    if of.pool.is_none() && !by_index {
        of.pool.clone_from(&from.pool);
    }
    own
}

/// A component of a definite layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// First byte in the file.
    pub start: u64,
    /// Byte behind the last.
    pub end: u64,
    /// Wishes for the component, with the inherited ones.
    pub asked: StripePolicy,
    /// Stripe size in bytes.
    pub stripe_size_bytes: u32,
}

/// Refuses a layout that a file system with these OSTs and pools cannot have, with the nearest value that it can.
pub fn check_policy(policy: &LayoutPolicy, osts: &[u16], pools: &Pools) -> Result<(), Fault> {
    plan(policy)?.iter().try_for_each(|part| match part.asked.pool() {
        None => normalise(&part.asked, osts).map(drop),
        Some(name) => {
            let members = pools.get(name).ok_or_else(|| no_pool(name, pools))?;
            if members.is_empty() {
                return Err(empty_pool(name));
            }
            normalise(&part.asked, members).map(drop)
        }
    })
}

fn no_pool(name: &PoolName, pools: &Pools) -> Fault {
    let names: Vec<&str> = pools.keys().map(PoolName::as_str).collect();
    let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Fault::new(Code::NoSuchPool)
        .subject(name.to_string())
        .why(format!("the pools are: {known}"))
        .next(format!("choose one of them, or make it: brindle pool create {name}"))
}

/// The refusal of a place in a pool that has no OST.
pub fn empty_pool(name: &PoolName) -> Fault {
    Fault::new(Code::PoolEmpty)
        .subject(name.to_string())
        .data("nothing was written")
        .next(format!("give it OSTs: brindle pool add {name} OST..., or choose another: lfs setstripe -p"))
}

/// Set of OSTs to choose from, in words.
fn ground(pool: Option<&PoolName>) -> String {
    pool.map_or("the file system".to_owned(), |name| format!("the pool {name}"))
}

/// The components of a layout; refuses what no file system can have. Count and stripe size that a component leaves out
/// are those of the component before it.
pub fn plan(policy: &LayoutPolicy) -> Result<Vec<Planned>, Fault> {
    let whole = [ComponentPolicy { end_bytes: EOF, stripe: policy.stripe.clone() }];
    let parts = if policy.components.is_empty() { &whole } else { &policy.components[..] };
    if parts.len() > COMPONENTS_MAX {
        let why = format!("a file has at most {COMPONENTS_MAX} components");
        return Err(refuse("component count", parts.len(), why, COMPONENTS_MAX));
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
            let nearest = (end.saturating_add(unit / 2) / unit * unit).max(start.saturating_add(unit));
            refuse(
                format!("an end is a multiple of {unit} bytes (64 KiB)"),
                format!("the nearest possible end is {nearest}"),
            )
        }
        (false, false) => Ok(()),
    }
}

/// The layout of files where nobody has chosen one: one stripe while they are small, more as they grow.
pub fn progressive() -> LayoutPolicy {
    let part = |end_bytes, count| {
        let stripe = StripePolicy { count: Some(count), ..StripePolicy::default() };
        ComponentPolicy { end_bytes, stripe }
    };
    let components = vec![part(64 << 20, 1), part(1 << 30, 4), part(EOF, -1)];
    LayoutPolicy { stripe: StripePolicy::default(), components }
}

/// Makes a policy definite for a file system or pool with these OSTs (indices, in any order), or refuses it with
/// `BadStripe` and the nearest value that is possible.
pub fn normalise(policy: &StripePolicy, osts: &[u16]) -> Result<Striping, Fault> {
    listed(policy, osts)?;
    Ok(Striping {
        count: count(policy, osts.len())?,
        size_bytes: size(policy)?,
        start_ost: start(policy, osts)?,
    })
}

fn refuse(field: &str, asked: impl Display, why: String, nearest: impl Display) -> Fault {
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
            return Err(refuse("OST", ost, "it is named twice".into(), ost));
        }
        known("OST", (*ost).into(), osts, policy.pool())?;
    }
    match policy.count.filter(|n| !list.is_empty() && *n != 0 && usize::try_from(*n) != Ok(list.len())) {
        Some(n) => {
            let why = format!("{} OSTs are named", list.len());
            Err(refuse("stripe count", n, why, list.len()))
        }
        None => Ok(()),
    }
}

fn count(policy: &StripePolicy, ost_count: usize) -> Result<StripeCount, Fault> {
    let most = u32::try_from(ost_count).unwrap_or(u32::MAX).min(STRIPE_COUNT_MAX);
    match policy.count.unwrap_or(0) {
        -1 => Ok(StripeCount::All),
        0 => Ok(StripeCount::Exactly(STRIPE_COUNT_DEFAULT)),
        n if n < 0 => {
            Err(refuse("stripe count", n, "a count is 1 or more, 0 for the default, -1 for all".into(), 1))
        }
        n if n.unsigned_abs() > STRIPE_COUNT_MAX => {
            let why = format!("a file has at most {STRIPE_COUNT_MAX} stripes");
            Err(refuse("stripe count", n, why, most))
        }
        n if most == 0 => {
            let why = format!("{} has {ost_count} OSTs", ground(policy.pool()));
            Err(refuse("stripe count", n, why, most))
        }
        // A larger number than there are OSTs means all of them, as in Lustre: scripts are written for other
        // machines.
        n => Ok(StripeCount::Exactly(most.min(n.unsigned_abs()))),
    }
}

fn size(policy: &StripePolicy) -> Result<u32, Fault> {
    let asked = match policy.size_bytes.unwrap_or(0) {
        0 => return Ok(STRIPE_SIZE_DEFAULT_BYTES),
        n => n,
    };
    let refuse = |why: String, nearest: u32| Err(refuse("stripe size", asked, why, nearest));
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
    known("start OST", asked, osts, policy.pool()).map(Some)
}

/// An OST that was asked for by its index.
fn known(field: &str, asked: i64, osts: &[u16], pool: Option<&PoolName>) -> Result<u16, Fault> {
    if let Some(found) = osts.iter().find(|o| i64::from(**o) == asked) {
        return Ok(*found);
    }
    match osts.iter().min_by_key(|o| ((i64::from(**o) - asked).abs(), **o)) {
        Some(nearest) => {
            let why = match pool {
                None => format!("there is no OST of index {asked}"),
                Some(name) => format!("the pool {name} has no OST of index {asked}"),
            };
            Err(refuse(field, asked, why, nearest))
        }
        None => Err(Fault::new(Code::BadStripe).why(format!("{} has no OST", ground(pool)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::PoolChoice;

    fn policy(count: i32, size_bytes: u32, start_ost: i32) -> StripePolicy {
        StripePolicy {
            count: Some(count),
            size_bytes: Some(size_bytes),
            start_ost: Some(start_ost),
            ..StripePolicy::default()
        }
    }

    fn pool(name: &str) -> StripePolicy {
        let pool = Some(PoolChoice::Named(name.parse().expect("a good name")));
        StripePolicy { pool, ..StripePolicy::default() }
    }

    #[test]
    fn pools_are_inherited_unless_osts_are_named() {
        let (flash, plain) = (pool("flash"), policy(2, 65536, 1));
        let counted = StripePolicy { count: Some(2), ..Default::default() };
        assert_eq!(inherit(&counted, &flash).pool(), flash.pool());
        assert_eq!(inherit(&policy(2, 0, 5), &flash).pool(), None, "OST 5 may lie in another pool");
        assert_eq!(inherit(&policy(2, 0, -1), &flash).pool(), flash.pool());
        let listed = StripePolicy { osts: vec![1], ..Default::default() };
        assert_eq!(inherit(&listed, &flash).pool(), None);
        let in_flash = inherit(&flash, &plain);
        assert_eq!((in_flash.count, in_flash.start_ost), (Some(2), None), "the start is of another pool");
        assert_eq!(inherit(&flash, &listed).osts, [0; 0]);
        let all = StripePolicy { pool: Some(PoolChoice::All), ..Default::default() };
        assert_eq!(inherit(&all, &flash).pool, Some(PoolChoice::All));
    }

    #[test]
    fn a_pool_is_that_of_all_components() {
        let names = |p: &LayoutPolicy| -> Vec<Option<String>> {
            let planned = plan(p).expect("good");
            planned.iter().map(|part| part.asked.pool().map(ToString::to_string)).collect()
        };
        let flash = Some("flash".to_owned());
        let grows = inherit_layout(&pool("flash").into(), &progressive());
        assert_eq!(names(&grows), [flash.clone(), flash.clone(), flash.clone()]);
        assert_eq!(grows.components.len(), 3, "the rest is inherited");
        let mut own = progressive();
        assert_eq!(names(&inherit_layout(&own, &pool("flash").into())), names(&grows));
        own.components[1].stripe.pool = pool("disk").pool;
        let disk = Some("disk".to_owned());
        assert_eq!(names(&own), [None, disk.clone(), disk], "behind a component the pool stays");
    }

    #[test]
    fn pools_that_cannot_be_had_are_named() {
        let mut pools = Pools::new();
        pools.insert("flash".parse().expect("good"), vec![4, 5]);
        pools.insert("empty".parse().expect("good"), Vec::new());
        let check = |p: StripePolicy| check_policy(&p.into(), &[0, 1, 4, 5], &pools);
        assert_eq!(check(StripePolicy { count: Some(2), ..pool("flash") }), Ok(()));
        assert_eq!(check(StripePolicy { count: Some(3), ..pool("flash") }), Ok(()), "of all that there are");
        let start = check(StripePolicy { start_ost: Some(1), ..pool("flash") }).expect_err("refused");
        assert_eq!(start.why[0], "the pool flash has no OST of index 1");
        assert_eq!(check(pool("empty")).expect_err("refused").code, Code::PoolEmpty);
        assert_eq!(
            check(pool("flush")).expect_err("refused").to_string(),
            "no such pool flush\
             \n  why:  the pools are: empty, flash\
             \n  next: choose one of them, or make it: brindle pool create flush\
             \n  code: E5007 (brindle explain E5007)"
        );
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
        let none = Pools::new();
        assert_eq!(check_policy(&progressive(), &osts, &none), Ok(()));

        let next = |of: &[(u64, Option<i32>)]| {
            check_policy(&parts(of), &osts, &none).expect_err("refused").next.into_owned()
        };
        assert_eq!(next(&[(unit, None)]), "add a last one: -E -1");
        assert_eq!(next(&[(EOF, None), (EOF, None)]), "leave out what follows, or give it an end");
        assert_eq!(next(&[(100_000, None), (EOF, None)]), "the nearest possible end is 131072");
        assert_eq!(
            next(&[(2 * unit, None), (unit, None), (EOF, None)]),
            "the nearest possible end is 196608"
        );
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
        let nine = normalise(&policy(9, 0, -1), &[0, 1, 2, 3]).expect("all that there are");
        assert_eq!(nine.count, StripeCount::Exactly(4));
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
