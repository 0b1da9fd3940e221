//! Limits of jobs, users and hosts: token buckets as a state machine without a clock.
//!
//! A bucket is kept as the time at which it is full again (the generic cell rate algorithm): a request moves that time on by its cost, and
//! is ready when the bucket would hold a token. If several rules count for a request, it takes tokens of all, and is ready when the last
//! bucket has one.
//!
//! Invariants: no request is held for longer than [`HELD_MS_MAX`]; no bucket owes more than that time; everything is bounded.

use std::collections::BTreeMap;

use brindle_stdx::Mono;
use brindle_types::Role;
use brindle_wire::mgs::limit::{LimitOf, LimitRule, glob};

/// Longest time that a limit holds a request. A client that others wait for must be able to answer within its lease (6 s),
/// and its pending writes may be queued behind the held request.
pub const HELD_MS_MAX: u64 = 4_000;
/// Size of a bucket, in milliseconds of its rate; one request at least.
pub const BURST_MS: u64 = 250;
/// Most buckets of a target. Beyond that, full ones are forgotten, which changes nothing; then the fullest.
pub const BUCKETS_MAX: usize = 4_096;
const NS_PER_S: u128 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// Who asks, and for how much.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// Name of the job, if the request names one.
    pub job: Option<&'a str>,
    /// User of the job.
    pub uid: Option<u32>,
    /// Name of the host.
    pub host: &'a str,
    /// Address of the host.
    pub address: &'a str,
    /// Bytes of files in the request, or room for them in the reply.
    pub bytes: u64,
}

/// Requests that a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests that the rule counts for.
    pub requests: u64,
    /// Requests that were held.
    pub held: u64,
    /// For how long, in microseconds.
    pub held_micros: u64,
    /// Held requests that went on before there were tokens, because the longest time was over.
    pub overdue: u64,
}

struct Rule {
    name: String,
    of: Vec<LimitOf>,
    requests_per_s: Option<u64>,
    bytes_per_s: Option<u64>,
    ends: Option<Mono>,
    counted: Counted,
}

/// The one that a bucket is for: number of the rule, and the job, user or host.
type Owner = (usize, String);

#[derive(Clone, Copy, Default)]
struct Bucket {
    requests_full: Mono,
    bytes_full: Mono,
}

/// Moment at which a request is ready, and the rule that holds it until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The moment; not before now.
    pub at: Mono,
    /// Number of the rule.
    pub rule: usize,
}

/// The rules of a target and their buckets.
#[derive(Default)]
pub struct Buckets {
    rules: Vec<Rule>,
    buckets: BTreeMap<Owner, Bucket>,
}

impl Buckets {
    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Replaces the rules by those that count at a target of this role. A rule that stays as it was keeps its buckets and its counters. `wall_s` is
    /// the time of `now` in seconds since 1970. Returns the new number of each former rule that has the same rates as before: what it holds stays
    /// held.
    pub fn replace(
        &mut self,
        rules: &[LimitRule],
        role: Role,
        now: Mono,
        wall_s: i64,
    ) -> BTreeMap<usize, usize> {
        let mut staying = BTreeMap::new();
        let before = std::mem::take(&mut self.rules);
        let buckets = std::mem::take(&mut self.buckets);
        for rule in rules.iter().filter(|rule| rule.at.counts_at(role)) {
            let left_s = |ends_s: i64| u64::try_from(ends_s.saturating_sub(wall_s)).unwrap_or(0);
            let ends = rule.ends_s.map(|ends_s| now.plus_ms(left_s(ends_s).saturating_mul(1_000)));
            let number = self.rules.len();
            let same = |old: &Rule| old.name == rule.name && old.of == rule.of;
            let old = before.iter().position(same);
            let counted = old.map(|old| before[old].counted).unwrap_or_default();
            if let Some(old) = old {
                let rates = (before[old].requests_per_s, before[old].bytes_per_s);
                if rates == (rule.requests_per_s, rule.bytes_per_s) {
                    staying.insert(old, number);
                }
                let kept = buckets.iter().filter(|((of, _), _)| *of == old);
                self.buckets.extend(kept.map(|((_, who), bucket)| ((number, who.clone()), *bucket)));
            }
            self.rules.push(Rule {
                name: rule.name.clone(),
                of: rule.of.clone(),
                requests_per_s: rule.requests_per_s,
                bytes_per_s: rule.bytes_per_s,
                ends,
                counted,
            });
        }
        staying
    }

    /// Name of a rule.
    pub fn name(&self, rule: usize) -> &str {
        self.rules.get(rule).map_or("", |rule| &rule.name)
    }

    /// Counters of the rules, by name.
    pub fn counted(&self) -> impl Iterator<Item = (&str, Counted)> {
        self.rules.iter().map(|rule| (rule.name.as_str(), rule.counted))
    }

    /// Takes tokens for a request; `None` if it is ready now.
    pub fn take(&mut self, now: Mono, asker: &Asker<'_>) -> Option<Ready> {
        let mut ready: Option<Ready> = None;
        let longest = now.plus_ms(HELD_MS_MAX);
        for number in 0..self.rules.len() {
            let rule = &self.rules[number];
            if rule.ends.is_some_and(|ends| ends <= now) {
                continue;
            }
            let Some(who) = rule.of.iter().find_map(|of| matched(of, asker)) else { continue };
            let rates = (rule.requests_per_s, rule.bytes_per_s);
            if self.buckets.len() >= BUCKETS_MAX {
                self.make_room(now);
            }
            let bucket = self.buckets.entry((number, who)).or_default();
            let by_requests = rates.0.map(|rate| take(&mut bucket.requests_full, now, 1, rate));
            let by_bytes = rates.1.map(|rate| take(&mut bucket.bytes_full, now, asker.bytes, rate));
            let at = by_requests.max(by_bytes).unwrap_or(now);
            let counted = &mut self.rules[number].counted;
            counted.requests += 1;
            if at > longest {
                counted.overdue += 1;
            }
            let at = at.min(longest);
            if at > now {
                counted.held += 1;
                counted.held_micros += (at.0 - now.0) / 1_000;
                if ready.is_none_or(|ready| ready.at < at) {
                    ready = Some(Ready { at, rule: number });
                }
            }
        }
        ready
    }

    /// Takes tokens for bytes of a request that was served: how many they are was not known before.
    pub fn pay(&mut self, now: Mono, asker: &Asker<'_>) {
        for number in 0..self.rules.len() {
            let rule = &self.rules[number];
            let Some(rate) = rule.bytes_per_s.filter(|_| rule.ends.is_none_or(|ends| ends > now)) else {
                continue;
            };
            let Some(who) = rule.of.iter().find_map(|of| matched(of, asker)) else { continue };
            // A bucket that is not there was full, and forgotten.
            if self.buckets.len() < BUCKETS_MAX || self.buckets.contains_key(&(number, who.clone())) {
                take(&mut self.buckets.entry((number, who)).or_default().bytes_full, now, asker.bytes, rate);
            }
        }
    }

    fn make_room(&mut self, now: Mono) {
        self.buckets.retain(|_, bucket| bucket.requests_full > now || bucket.bytes_full > now);
        if self.buckets.len() >= BUCKETS_MAX
            && let Some(fullest) = self
                .buckets
                .iter()
                .min_by_key(|(_, bucket)| bucket.requests_full.max(bucket.bytes_full))
                .map(|(owner, _)| owner.clone())
        {
            self.buckets.remove(&fullest);
        }
    }
}

/// The job, user or host that a rule counts by, if the request is of one that it names.
fn matched(of: &LimitOf, asker: &Asker<'_>) -> Option<String> {
    match of {
        LimitOf::Job(pattern) => asker.job.filter(|job| glob(pattern, job)).map(str::to_owned),
        LimitOf::User(uid) => (asker.uid == Some(*uid)).then(|| uid.to_string()),
        LimitOf::Host(pattern) => {
            let is_named = glob(pattern, asker.host) || glob(pattern, asker.address);
            is_named.then(|| asker.host.to_owned())
        }
    }
}

/// Takes `count` tokens of a bucket that gets `rate` a second; the moment at which there is one.
fn take(full: &mut Mono, now: Mono, count: u64, rate: u64) -> Mono {
    let cost_ns = u128::from(count) * NS_PER_S / u128::from(rate.max(1));
    let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
    let ready = Mono(full.0.saturating_sub(BURST_MS * NS_PER_MS)).max(now);
    // A job that was held back for the longest time owes nothing beyond that.
    let latest = now.plus_ms(HELD_MS_MAX + BURST_MS);
    *full = Mono((*full).max(now).min(latest).0.saturating_add(cost_ns));
    ready
}

#[cfg(test)]
mod tests {
    use brindle_wire::mgs::limit::LimitAt;
    use proptest::prelude::*;

    use super::*;

    fn rule(name: &str, of: LimitOf, requests_per_s: Option<u64>, bytes_per_s: Option<u64>) -> LimitRule {
        LimitRule {
            name: name.to_owned(),
            of: vec![of],
            at: LimitAt::Everywhere,
            requests_per_s,
            bytes_per_s,
            ends_s: None,
        }
    }

    fn buckets(rules: &[LimitRule]) -> Buckets {
        let mut buckets = Buckets::default();
        buckets.replace(rules, Role::Mdt, Mono(0), 1_000);
        buckets
    }

    fn asker(job: &str, bytes: u64) -> Asker<'_> {
        Asker { job: Some(job), uid: Some(7), host: "n1", address: "10.0.0.1", bytes }
    }

    fn ms(ms: u64) -> Mono {
        Mono(0).plus_ms(ms)
    }

    #[test]
    fn a_limit_counts_for_those_that_it_names() {
        let job = LimitOf::Job("a".into());
        let mut buckets = buckets(&[rule("slow", job, Some(1), None)]);
        assert_eq!(buckets.take(ms(0), &asker("a", 0)), None, "the first token is there");
        assert_eq!(buckets.take(ms(0), &asker("a", 0)), Some(Ready { at: ms(750), rule: 0 }));
        assert_eq!(buckets.take(ms(0), &asker("b", 0)), None);
        let counted: Vec<_> = buckets.counted().collect();
        assert_eq!(counted, [("slow", Counted { requests: 2, held: 1, held_micros: 750_000, overdue: 0 })]);
    }

    #[test]
    fn users_hosts_and_patterns() {
        let none = |of: LimitOf| {
            let mut buckets = buckets(&[rule("r", of, Some(1), None)]);
            buckets.take(ms(0), &asker("dd.0", 0));
            buckets.take(ms(0), &asker("dd.0", 0)).is_none()
        };
        assert!(!none(LimitOf::User(7)) && none(LimitOf::User(8)));
        assert!(!none(LimitOf::Host("n1".into())) && none(LimitOf::Host("n2".into())));
        assert!(!none(LimitOf::Host("10.0.0.*".into())) && !none(LimitOf::Job("dd.*".into())));
        // Each job that a pattern names has a bucket of its own, as in Lustre.
        let mut buckets = buckets(&[rule("r", LimitOf::Job("*".into()), Some(1), None)]);
        assert_eq!(buckets.take(ms(0), &asker("a", 0)), None);
        assert_eq!(buckets.take(ms(0), &asker("b", 0)), None);
        assert!(buckets.take(ms(0), &asker("b", 0)).is_some());
    }

    #[test]
    fn bytes_are_limited_and_a_large_request_is_paid_afterwards() {
        let mut buckets = buckets(&[rule("r", LimitOf::User(7), None, Some(1 << 20))]);
        assert_eq!(buckets.take(ms(0), &asker("a", 2 << 20)), None);
        assert_eq!(buckets.take(ms(0), &asker("a", 2 << 20)).map(|r| r.at), Some(ms(1_750)));
        assert_eq!(buckets.take(ms(0), &asker("a", 2 << 20)).map(|r| r.at), Some(ms(3_750)));
        assert_eq!(buckets.take(ms(0), &asker("a", 2 << 20)).map(|r| r.at), Some(ms(HELD_MS_MAX)));
        assert_eq!(buckets.counted().next().map(|(_, counted)| counted.overdue), Some(1));
    }

    #[test]
    fn all_rules_count_and_the_slowest_holds() {
        let (fast, slow) = (LimitOf::User(7), LimitOf::Job("a".into()));
        let mut buckets = buckets(&[rule("fast", fast, Some(100), None), rule("slow", slow, Some(1), None)]);
        buckets.take(ms(0), &asker("a", 0));
        let ready = buckets.take(ms(0), &asker("a", 0)).expect("held");
        assert_eq!(buckets.name(ready.rule), "slow");
    }

    #[test]
    fn rules_end_and_a_rule_that_stays_keeps_what_was_taken() {
        let ends = LimitRule { ends_s: Some(1_002), ..rule("r", LimitOf::User(7), Some(1), None) };
        let mut buckets = buckets(std::slice::from_ref(&ends));
        buckets.take(ms(0), &asker("a", 0));
        let faster = LimitRule { requests_per_s: Some(2), ..ends };
        buckets.replace(std::slice::from_ref(&faster), Role::Mdt, ms(0), 1_000);
        assert!(buckets.take(ms(0), &asker("a", 0)).is_some(), "the token is still taken");
        assert_eq!(buckets.take(ms(2_000), &asker("a", 0)), None, "the rule has ended");
        assert_eq!(buckets.take(ms(2_000), &asker("a", 0)), None);
        let at_osts = LimitRule { at: LimitAt::Osts, ..faster };
        buckets.replace(&[at_osts], Role::Mdt, ms(0), 1_000);
        assert!(buckets.is_empty());
    }

    #[test]
    fn bytes_that_are_known_afterwards_are_paid_then() {
        let mut buckets = buckets(&[rule("r", LimitOf::User(7), None, Some(1 << 20))]);
        assert_eq!(buckets.take(ms(0), &asker("a", 0)), None);
        buckets.pay(ms(0), &asker("a", 2 << 20));
        assert_eq!(buckets.take(ms(0), &asker("a", 0)).map(|r| r.at), Some(ms(1_750)));
    }

    #[test]
    fn buckets_are_bounded() {
        let mut buckets = buckets(&[rule("r", LimitOf::Job("*".into()), Some(1), None)]);
        for n in 0..BUCKETS_MAX + 100 {
            buckets.take(ms(0), &asker(&format!("j{n}"), 0));
        }
        assert!(buckets.buckets.len() <= BUCKETS_MAX);
    }

    proptest! {
        /// Over any time, no more requests are ready than tokens come, and what a bucket holds; unless they were held for the longest time.
        #[test]
        fn no_more_is_ready_than_tokens(
            rate in 1u64..500,
            gaps_ms in prop::collection::vec(0u64..50, 1..300),
        ) {
            let mut buckets = buckets(&[rule("r", LimitOf::User(7), Some(rate), None)]);
            let mut now = ms(0);
            let mut ready = Vec::new();
            for gap in gaps_ms {
                now = now.plus_ms(gap);
                let at = buckets.take(now, &asker("a", 0)).map_or(now, |ready| ready.at);
                prop_assert!(at >= now && at <= now.plus_ms(HELD_MS_MAX));
                prop_assert!(ready.last().is_none_or(|last| *last <= at), "in order");
                ready.push(at);
            }
            if buckets.counted().all(|(_, counted)| counted.overdue == 0) {
                for (n, from) in ready.iter().enumerate() {
                    for (m, to) in ready.iter().enumerate().skip(n) {
                        let count = (m - n + 1) as u64;
                        let tokens = (to.ms_since(*from) + 1 + BURST_MS) * rate / 1_000 + 1;
                        prop_assert!(count <= tokens + 1, "{count} requests, {tokens} tokens");
                    }
                }
            }
        }
    }
}
