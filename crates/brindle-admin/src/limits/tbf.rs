//! Rules in the text of Lustre's token bucket filter: `start NAME jobid={dd.0 iozone.500} rate=100`, `change NAME rate=200`, `stop NAME`.

use brindle_wire::mgs::limit::{LimitAt, LimitChange, LimitOf, LimitRule};

/// Example for messages.
const EXAMPLE: &str = "such as: start NAME jobid={dd.0 iozone.500} rate=100; change NAME rate=200; stop NAME";

/// Reads a rule; `at` are the targets that the parameter is of.
pub fn parse(text: &str, at: LimitAt) -> Result<LimitChange, String> {
    // Lustre has classes of requests in front: ordinary ones, and those of high priority.
    let text = text.trim();
    let text = text.strip_prefix("reg ").unwrap_or(text).trim_start();
    if text.starts_with("hp ") {
        return Err("requests that others wait for have no limit here: 'reg', or neither".to_owned());
    }
    let (verb, rest) = word(text);
    let (name, rest) = word(rest);
    if name.is_empty() {
        return Err(format!("it is no rule, {EXAMPLE}"));
    }
    let name = name.to_owned();
    match verb {
        "start" => start(name, rest, at),
        "change" => {
            let (rate, rest) = rate(rest)?;
            nothing_more(rest)?;
            Ok(LimitChange::Rate { name, requests_per_s: Some(rate), bytes_per_s: None })
        }
        "stop" => {
            nothing_more(rest)?;
            Ok(LimitChange::Remove(name))
        }
        other => Err(format!("'{other}' is not start, change or stop, {EXAMPLE}")),
    }
}

fn start(name: String, rest: &str, at: LimitAt) -> Result<LimitChange, String> {
    let mut of = Vec::new();
    let mut rest = rest;
    loop {
        let (expression, after) = expression(rest)?;
        of.extend(expression);
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_start();
            continue;
        }
        if rest.starts_with('&') {
            return Err("'&' is not possible: a limit is for jobs, for users or for hosts".to_owned());
        }
        break;
    }
    let (rate, rest) = rate(rest)?;
    nothing_more(rest)?;
    Ok(LimitChange::Add(LimitRule {
        name,
        of,
        at,
        requests_per_s: Some(rate),
        bytes_per_s: None,
        ends_s: None,
    }))
}

/// `jobid={a b}`, and what follows.
fn expression(text: &str) -> Result<(Vec<LimitOf>, &str), String> {
    let (key, rest) = text.split_once('=').ok_or_else(|| format!("it names nobody, {EXAMPLE}"))?;
    let key = key.trim();
    let inner =
        rest.trim_start().strip_prefix('{').ok_or_else(|| format!("there is no '{{' behind {key}="))?;
    let (words, after) = inner.split_once('}').ok_or_else(|| format!("there is no '}}' behind {key}={{"))?;
    let words = words.split([' ', ',']).filter(|word| !word.is_empty());
    let of: Result<Vec<LimitOf>, String> = match key {
        "jobid" => words.map(|job| Ok(LimitOf::Job(job.to_owned()))).collect(),
        "uid" => words.map(user).collect(),
        "nid" => words.map(host).collect(),
        "gid" | "projid" | "opcode" => {
            return Err(format!("limits do not go by {key}: jobid, uid and nid are possible"));
        }
        other => return Err(format!("'{other}' is not jobid, uid or nid")),
    };
    let of = of?;
    if of.is_empty() {
        return Err(format!("{key}={{}} names nobody"));
    }
    Ok((of, after))
}

fn user(text: &str) -> Result<LimitOf, String> {
    text.parse().map(LimitOf::User).map_err(|_| format!("'{text}' is no number of a user"))
}

/// An address in Lustre's form, as hosts are known here.
fn host(nid: &str) -> Result<LimitOf, String> {
    let host = nid.split_once('@').map_or(nid, |(host, _)| host);
    if host.contains(['[', ']']) {
        return Err(format!("ranges such as '{nid}' are not possible: name the hosts, or use *"));
    }
    Ok(LimitOf::Host(host.to_owned()))
}

/// `rate=100`, and what follows.
fn rate(text: &str) -> Result<(u64, &str), String> {
    let (first, rest) = word(text);
    let number = first.strip_prefix("rate=").ok_or_else(|| format!("there is no rate, {EXAMPLE}"))?;
    let rate = number.parse().ok().filter(|rate| *rate > 0);
    rate.map(|rate| (rate, rest))
        .ok_or_else(|| format!("'{number}' is no rate: a whole number of requests a second, from 1"))
}

fn nothing_more(rest: &str) -> Result<(), String> {
    match rest.trim() {
        "" => Ok(()),
        rest => Err(format!("'{rest}' is not understood")),
    }
}

/// The first word, and what follows.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<LimitChange, String> {
        parse(text, LimitAt::Osts)
    }

    #[test]
    fn lustres_text_is_understood() {
        let LimitChange::Add(rule) = parsed("start dd_user jobid={dd.0 iozone.500} rate=100").unwrap() else {
            panic!("it makes a rule")
        };
        assert_eq!((rule.name.as_str(), rule.requests_per_s, rule.at), ("dd_user", Some(100), LimitAt::Osts));
        assert_eq!(rule.of, [LimitOf::Job("dd.0".into()), LimitOf::Job("iozone.500".into())]);
        let of = |text: &str| match parsed(text).unwrap() {
            LimitChange::Add(rule) => rule.of,
            other => panic!("{other:?}"),
        };
        assert_eq!(of("reg start a uid={500 501} rate=5"), [LimitOf::User(500), LimitOf::User(501)]);
        assert_eq!(of("start a nid={192.168.1.*@tcp} rate=5"), [LimitOf::Host("192.168.1.*".into())]);
        assert_eq!(of("start a jobid={x},uid={7} rate=5"), [LimitOf::Job("x".into()), LimitOf::User(7)]);
        let rate = LimitChange::Rate { name: "a".into(), requests_per_s: Some(200), bytes_per_s: None };
        assert_eq!(parsed("change a rate=200"), Ok(rate));
        assert_eq!(parsed("stop a"), Ok(LimitChange::Remove("a".into())));
    }

    #[test]
    fn the_rest_is_refused() {
        for wrong in [
            "",
            "start",
            "start a",
            "begin a jobid={x} rate=1",
            "start a jobid={x}",
            "start a jobid={} rate=1",
            "start a jobid={x rate=1",
            "start a jobid=x rate=1",
            "start a jobid={x} rate=0",
            "start a jobid={x} rate=-5",
            "start a jobid={x} rate=many",
            "start a jobid={x} rate=1 rank=b",
            "start a gid={5} rate=1",
            "start a uid={ann} rate=1",
            "start a opcode={ost_read} rate=1",
            "start a jobid={x}&uid={5} rate=1",
            "start a nid={10.0.[1-4].1@tcp} rate=1",
            "hp start a jobid={x} rate=1",
            "change a",
            "change a rate=",
            "stop a b",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
