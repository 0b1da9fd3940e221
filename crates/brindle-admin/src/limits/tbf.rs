//! Rules in the text of Lustre's token bucket filter: `start NAME jobid={dd.0 iozone.500} rate=100`, `change NAME rate=200`, `stop NAME`.
//!
//! ```text
//! rule   = [ "reg" ] ( "start" NAME who { "," who } rate | "change" NAME rate | "stop" NAME )
//! who    = ( "jobid" | "uid" | "nid" ) "=" "{" WORD { ( " " | "," ) WORD } "}"
//! rate   = "rate=" NUMBER
//! ```

use brindle_wire::mgs::limit::{LimitAt, LimitChange, LimitOf, LimitRule};
use winnow::ascii::{digit1, multispace0, multispace1};
use winnow::combinator::{
    alt, cut_err, delimited, empty, eof, fail, peek, preceded, repeat, separated, terminated,
};
use winnow::error::{ContextError, ModalResult, ParseError, StrContext, StrContextValue};
use winnow::token::{take_till, take_while};
use winnow::{ModalParser, Parser};

/// Reads a rule; `at` are the targets that the parameter is of.
pub fn parse(text: &str, at: LimitAt) -> Result<LimitChange, String> {
    let mut rule = preceded(class, verb);
    let change = rule.parse(text.trim()).map_err(|wrong| message(&wrong))?;
    Ok(match change {
        LimitChange::Add(rule) => LimitChange::Add(LimitRule { at, ..rule }),
        other => other,
    })
}

/// The word at which the text stops being a rule, and what is expected in its place.
fn message(wrong: &ParseError<&str, ContextError>) -> String {
    let found = wrong.input()[wrong.offset()..].split_whitespace().next();
    let found = found.map_or_else(|| "nothing".to_owned(), |word| format!("'{word}'"));
    let expected = wrong.inner().context().find_map(|context| match context {
        StrContext::Expected(expected) => Some(expected),
        _ => None,
    });
    match expected {
        Some(expected) => format!("{found} stands where there must be {expected}"),
        None => format!("{found} stands behind the end of the rule"),
    }
}

fn expected(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}

/// Class of requests: Lustre has ordinary ones, and those of high priority.
fn class(input: &mut &str) -> ModalResult<()> {
    let urgent =
        cut_err(fail::<_, (), _>.context(expected("'reg' or no class: urgent requests have no limit here")));
    alt((keyword("reg"), (keyword("hp"), urgent).void(), empty)).parse_next(input)
}

fn verb(input: &mut &str) -> ModalResult<LimitChange> {
    let start = (name, separated(1.., cut_err(who), (multispace0, ',', multispace0)), rate);
    let start = start.map(|(name, of, requests): (_, Vec<Vec<LimitOf>>, _)| {
        let at = LimitAt::Everywhere;
        let (requests_per_s, bytes_per_s, ends_s) = (Some(requests), None, None);
        LimitChange::Add(LimitRule { name, of: of.concat(), at, requests_per_s, bytes_per_s, ends_s })
    });
    let change = (name, rate).map(|(name, requests)| LimitChange::Rate {
        name,
        requests_per_s: Some(requests),
        bytes_per_s: None,
    });
    alt((
        preceded(keyword("start"), cut_err(start)),
        preceded(keyword("change"), cut_err(change)),
        preceded(keyword("stop"), cut_err(name)).map(LimitChange::Remove),
    ))
    .context(expected("start, change or stop, such as: start NAME jobid={dd.0 iozone.500} rate=100"))
    .parse_next(input)
}

/// A word of the grammar with the space that ends it.
fn keyword<'a>(word: &'static str) -> impl ModalParser<&'a str, (), ContextError> {
    (word, alt((multispace1, eof))).void()
}

fn name(input: &mut &str) -> ModalResult<String> {
    let word = take_till(1.., char::is_whitespace).map(str::to_owned);
    terminated(word, multispace0).context(expected("the name of a rule")).parse_next(input)
}

/// `jobid={a b}`.
fn who(input: &mut &str) -> ModalResult<Vec<LimitOf>> {
    let key = |key: &'static str| (key, multispace0, '=', multispace0);
    let job = |job: &str| Some(LimitOf::Job(job.to_owned()));
    let user = |uid: &str| uid.parse().ok().map(LimitOf::User);
    // An address in Lustre's form, as hosts are known here.
    let host = |nid: &str| {
        let host = nid.split_once('@').map_or(nid, |(host, _)| host);
        (!host.contains(['[', ']'])).then(|| LimitOf::Host(host.to_owned()))
    };
    let hosts = "hosts in braces, such as {10.0.0.7@tcp 10.0.1.*@tcp}; ranges in brackets are not possible";
    alt((
        preceded(key("jobid"), list(job, "jobs in braces, such as {dd.0 iozone.500}")),
        preceded(key("uid"), list(user, "numbers of users in braces, such as {500 501}")),
        preceded(key("nid"), list(host, hosts)),
        refused("gid", "jobid={...}, uid={...} or nid={...}: limits do not go by gid"),
        refused("projid", "jobid={...}, uid={...} or nid={...}: limits do not go by projid"),
        refused("opcode", "jobid={...}, uid={...} or nid={...}: limits do not go by opcode"),
    ))
    .context(expected("jobid={...}, uid={...} or nid={...}"))
    .parse_next(input)
}

/// A key of Lustre's that is refused; `what` is to stand in its place.
fn refused<'a>(
    key: &'static str,
    what: &'static str,
) -> impl ModalParser<&'a str, Vec<LimitOf>, ContextError> {
    preceded(peek((key, multispace0, '=')), cut_err(fail.context(expected(what))))
}

/// Words in braces, each of which `read` understands.
fn list<'a>(
    read: impl Fn(&'a str) -> Option<LimitOf>,
    what: &'static str,
) -> impl ModalParser<&'a str, Vec<LimitOf>, ContextError> {
    let gap = || take_while(0.., [' ', ',']);
    let word = take_till(1.., [' ', ',', '}']).verify_map(read);
    cut_err(delimited(('{', gap()), repeat(1.., terminated(word, gap())), '}').context(expected(what)))
}

/// `rate=100`.
fn rate(input: &mut &str) -> ModalResult<u64> {
    let number = digit1.parse_to().verify(|rate: &u64| *rate > 0);
    let number = number.context(expected("a whole number of requests a second, from 1"));
    preceded((multispace0, "rate="), cut_err(number))
        .context(expected("a rate such as rate=100, or a comma and more jobs, users or hosts"))
        .parse_next(input)
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
    #[test]
    fn a_refusal_names_the_word_and_what_must_stand_there() {
        let message = |text: &str| parsed(text).expect_err(text);
        assert_eq!(
            message("begin a"),
            "'begin' stands where there must be start, change or stop, such as: start NAME jobid={dd.0 iozone.500} rate=100"
        );
        assert_eq!(message("stop"), "nothing stands where there must be the name of a rule");
        assert_eq!(
            message("start a jobid={x}, gid={5} rate=1"),
            "'gid={5}' stands where there must be jobid={...}, uid={...} or nid={...}: limits do not go by gid"
        );
        assert_eq!(
            message("start a uid={500 ann} rate=1"),
            "'ann}' stands where there must be numbers of users in braces, such as {500 501}"
        );
        assert_eq!(
            message("start a jobid={x}&uid={5} rate=1"),
            "'&uid={5}' stands where there must be a rate such as rate=100, or a comma and more jobs, users or hosts"
        );
        assert_eq!(
            message("change a rate=0"),
            "'0' stands where there must be a whole number of requests a second, from 1"
        );
        assert_eq!(message("stop a b"), "'b' stands behind the end of the rule");
    }
}
