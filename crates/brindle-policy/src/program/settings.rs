//! Triggers and parameters.

use brindle_types::Result;

use super::ignored::is_ignored_key;
use super::{Parameters, Reading, THREADS_MAX, define, one, one_as, unknown_item};
use crate::tree::{self, Block, Body, Item};
use crate::trigger::{Level, On, Trigger};
use crate::values;

/// A watermark's key: whether it is the high one, and how its value is read. `_watermark_` is the older spelling of `_threshold_`.
fn level_key(key: &str) -> Option<(bool, &str)> {
    let (is_high, rest) = match key.strip_prefix("high_") {
        Some(rest) => (true, rest),
        None => (false, key.strip_prefix("low_")?),
    };
    let kind = rest.strip_prefix("threshold_").or_else(|| rest.strip_prefix("watermark_"))?;
    ["pct", "vol", "cnt", "cntpct"].contains(&kind).then_some((is_high, kind))
}

fn level(set: &tree::Set, kind: &str) -> Result<Level> {
    Ok(match kind {
        "pct" => Level::Pct(one_as(set, values::percent)?),
        "vol" => Level::Bytes(one_as(set, values::size)?),
        "cnt" => Level::Count(one_as(set, values::count)?),
        _ => Level::CountPct(one_as(set, values::percent)?),
    })
}

/// A number; `None` for 0, which stands for no limit.
fn limit(set: &tree::Set, read: fn(&str) -> std::result::Result<u64, String>) -> Result<Option<u64>> {
    Ok(Some(one_as(set, read)?).filter(|n| *n > 0))
}

fn on(set: &tree::Set) -> Result<On> {
    let [value] = &set.values[..] else {
        return Err(set.key.pos.wrong("'trigger_on' has one value"));
    };
    let names: Vec<String> = value.arguments.iter().map(|word| word.text.clone()).collect();
    let listed = |what: &str| match names.is_empty() {
        false => Ok(names.clone()),
        true => Err(value.word.pos.wrong(format!("name the {what}: {}(NAME, ...)", value.word.text))),
    };
    let alone = |on: On| match names.is_empty() {
        true => Ok(on),
        false => Err(value.word.pos.wrong(format!("'{}' takes no names", value.word.text))),
    };
    match value.word.text.to_ascii_lowercase().as_str() {
        "periodic" | "scheduled" => alone(On::Periodic),
        "global_usage" => alone(On::Global),
        "ost_usage" => alone(On::Ost),
        "pool_usage" => listed("pools").map(On::Pool),
        "user_usage" => listed("users").map(On::User),
        "group_usage" => listed("groups").map(On::Group),
        other => Err(value.word.pos.wrong(format!(
            "'{other}' is no trigger of this release; there are periodic, global_usage, ost_usage, pool_usage, user_usage, group_usage"
        ))),
    }
}

impl Reading {
    /// `NAME_trigger { ... }`; there may be several.
    pub(super) fn trigger(&mut self, name: &str, block: &Block, items: &[Item]) -> Result<()> {
        let pos = block.key.pos.clone();
        let (mut looks_at, mut interval) = (None, None);
        let mut trigger = Trigger {
            pos: pos.clone(),
            on: On::Periodic,
            high: None,
            low: None,
            interval_secs: 0,
            count_max: None,
            bytes_max: None,
            post_wait_secs: None,
        };
        for item in items {
            let Item::Set(set) = item else { return Err(unknown_item(item, "a trigger")) };
            let key = set.key.text.to_ascii_lowercase();
            if let Some((is_high, kind)) = level_key(&key) {
                let level = Some(level(set, kind)?);
                if is_high {
                    trigger.high = level
                } else {
                    trigger.low = level
                }
                continue;
            }
            match key.as_str() {
                "trigger_on" => looks_at = Some(on(set)?),
                "check_interval" => interval = Some(one_as(set, values::duration)?),
                "max_action_count" => trigger.count_max = limit(set, values::count)?,
                "max_action_volume" | "max_action_vol" => trigger.bytes_max = limit(set, values::size)?,
                "post_trigger_wait" => trigger.post_wait_secs = Some(one_as(set, values::duration)?),
                "alert_high" | "notify_hw" | "alert_high_threshold" => {
                    self.ignore(&set.key.pos, format!("{}: {}", block.key.text, set.key.text))
                }
                _ if is_ignored_key(&key) => {
                    self.ignore(&set.key.pos, format!("{}: {}", block.key.text, set.key.text))
                }
                _ => return Err(unknown_item(item, "a trigger")),
            }
        }
        trigger.on = looks_at.ok_or_else(|| pos.wrong("the trigger has no trigger_on"))?;
        let interval = interval.filter(|secs| *secs > 0);
        trigger.interval_secs = interval.ok_or_else(|| pos.wrong("the trigger has no check_interval"))?;
        check_levels(&trigger)?;
        self.parts(name, &pos).triggers.push(trigger);
        Ok(())
    }

    /// `NAME_parameters { ... }`.
    pub(super) fn parameters(&mut self, name: &str, block: &Block, items: &[Item]) -> Result<()> {
        let order = self.definitions.get(name).map(|definition| definition.order);
        let mut parameters = Parameters::default();
        parameters.order = order.unwrap_or(parameters.order);
        for item in items {
            match item {
                Item::Set(set) => {
                    if !parameter(&mut parameters, set)? {
                        let key = &set.key;
                        if !is_ignored_key(&key.text) {
                            return Err(unknown_item(item, &block.key.text));
                        }
                        self.ignore(&key.pos, format!("{}: {}", block.key.text, key.text));
                    }
                }
                Item::Block(inner) => match (&inner.body, inner.key.text.to_ascii_lowercase().as_str()) {
                    (Body::Items(items), "rate_limit") => rate_limit(&mut parameters, items)?,
                    (Body::Items(items), "max_per_run") => max_per_run(&mut parameters, items)?,
                    _ => return Err(unknown_item(item, &block.key.text)),
                },
            }
        }
        let parts = self.parts(name, &block.key.pos);
        match parts.parameters.replace(parameters) {
            None => Ok(()),
            Some(_) => Err(block.key.pos.wrong(format!("the policy '{name}' has parameters already"))),
        }
    }
}

fn check_levels(trigger: &Trigger) -> Result<()> {
    let wrong = |why: &str| Err(trigger.pos.wrong(why));
    let (high, low) = match (trigger.high, trigger.low, &trigger.on) {
        (None, None, On::Periodic) => return Ok(()),
        (_, _, On::Periodic) => return wrong("a periodic trigger has no watermarks"),
        (Some(high), Some(low), _) => (high, low),
        _ => {
            return wrong(
                "the trigger needs a high and a low watermark (high_threshold_pct and low_threshold_pct)",
            );
        }
    };
    let is_below = match (low, high) {
        (Level::Pct(low), Level::Pct(high)) | (Level::CountPct(low), Level::CountPct(high)) => low <= high,
        (Level::Bytes(low), Level::Bytes(high)) | (Level::Count(low), Level::Count(high)) => low <= high,
        _ => return wrong("the high and the low watermark are of one kind: _pct, _vol, _cnt or _cntpct"),
    };
    let counts = matches!(high, Level::Count(_) | Level::CountPct(_));
    if counts && matches!(trigger.on, On::Ost | On::Pool(_)) {
        return wrong("an OST or a pool is watched by _pct or _vol, since entries are the MDT's");
    }
    if is_below { Ok(()) } else { wrong("the low watermark is above the high one") }
}

/// Takes a parameter; false if there is none of this name.
fn parameter(parameters: &mut Parameters, set: &tree::Set) -> Result<bool> {
    match set.key.text.to_ascii_lowercase().as_str() {
        "nb_threads" | "nb_threads_migration" | "nb_threads_purge" | "nb_threads_rmdir" => {
            parameters.threads = one_as(set, values::count)?;
            if !(1..=THREADS_MAX).contains(&parameters.threads) {
                return Err(set.key.pos.wrong(format!("there are 1 to {THREADS_MAX} threads")));
            }
        }
        "max_action_count" | "max_migration_count" | "max_count" => {
            parameters.count_max = limit(set, values::count)?
        }
        "max_action_volume" | "max_migration_volume" | "max_volume" => {
            parameters.bytes_max = limit(set, values::size)?
        }
        "runtime_interval" => {
            let secs = one_as(set, values::duration)?;
            if secs == 0 {
                return Err(set.key.pos.wrong("an interval is longer than 0"));
            }
            parameters.interval_secs = Some(secs);
        }
        "lru_sort_attr" => parameters.order = define::order(one(set)?)?,
        "post_purge_df_latency" => parameters.post_wait_secs = Some(one_as(set, values::duration)?),
        "suspend_error_pct" => parameters.suspend_error_pct = Some(one_as(set, values::percent)?),
        "suspend_error_min" => parameters.suspend_error_min = one_as(set, values::count)?,
        "action_timeout" => parameters.action_timeout_secs = one_as(set, values::duration)?.max(1),
        "schedulers" => {
            for value in &set.values {
                let name = value.word.text.to_ascii_lowercase();
                if !["common.rate_limit", "common.max_per_run"].contains(&name.as_str()) {
                    return Err(value.word.pos.wrong(format!("the scheduler '{name}' is not there; there are common.rate_limit and common.max_per_run")));
                }
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn rate_limit(parameters: &mut Parameters, items: &[Item]) -> Result<()> {
    for item in items {
        let Item::Set(set) = item else { return Err(unknown_item(item, "rate_limit")) };
        match set.key.text.to_ascii_lowercase().as_str() {
            "max_count" => parameters.rate_count = limit(set, values::count)?,
            "max_size" | "max_volume" => parameters.rate_bytes = limit(set, values::size)?,
            "period_ms" => parameters.period_ms = one_as(set, values::count)?.max(1),
            _ => return Err(unknown_item(item, "rate_limit")),
        }
    }
    Ok(())
}

fn max_per_run(parameters: &mut Parameters, items: &[Item]) -> Result<()> {
    for item in items {
        let Item::Set(set) = item else { return Err(unknown_item(item, "max_per_run")) };
        match set.key.text.to_ascii_lowercase().as_str() {
            "max_count" => parameters.count_max = limit(set, values::count)?,
            "max_vol" | "max_volume" | "max_size" => parameters.bytes_max = limit(set, values::size)?,
            _ => return Err(unknown_item(item, "max_per_run")),
        }
    }
    Ok(())
}
