//! Choice of parameters by a pattern: `osc.*.active`, `osc/*/active`, `{osc,mdc}.scratch-*.import`. If no
//! parameter matches the pattern, the fault has the reason and a likely correction.

use brindle_mds::scan::glob::Glob;
use brindle_types::{Code, Fault, Result};

use super::node::Node;
use super::params::{ABSENT, HOST, KINDS, Leaf, names, of_host, of_kind};
use crate::exit;
use brindle_admin::nearest::nearest;

/// Most patterns that braces may stand for.
const ALTERNATIVES_MAX: usize = 256;
/// Devices and targets that a message names.
const NAMED_MAX: usize = 4;

/// A pattern without braces, part by part.
struct Parts {
    texts: Vec<String>,
    globs: Vec<Glob>,
}

impl Parts {
    fn new(text: &str) -> Parts {
        let text = text.trim_matches(['/', '.']);
        let texts: Vec<String> = text.split(['.', '/']).map(str::to_owned).collect();
        let globs = texts.iter().map(|part| Glob::new(part.as_bytes(), false)).collect();
        Parts { texts, globs }
    }

    fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether the first parts of a path are these.
    fn leads_to(&self, path: &[String]) -> bool {
        path.len() >= self.len()
            && self.globs.iter().zip(path).all(|(glob, part)| glob.matches(part.as_bytes()))
    }

    fn last(&self) -> &str {
        self.texts.last().map_or("", String::as_str)
    }

    /// The kinds that the first part means.
    fn kinds(&self) -> Vec<&'static str> {
        let means = |kind: &&&str| self.globs.first().is_some_and(|glob| glob.matches(kind.as_bytes()));
        KINDS.iter().filter(means).copied().collect()
    }
}

/// Match of a pattern: a parameter that it names, or one below what it names.
pub struct ParameterMatch<'n> {
    /// The parameter.
    pub leaf: Leaf<'n>,
    /// Parts of its path that the pattern names.
    pub depth: usize,
}

impl ParameterMatch<'_> {
    /// Whether the pattern names the parameter itself.
    pub fn is_named(&self) -> bool {
        self.depth == self.leaf.path.len()
    }
}

/// All parameters at and below what the pattern names; a refusal if there are none.
pub fn select<'n>(node: &'n Node, pattern: &str) -> Result<Vec<ParameterMatch<'n>>> {
    let mut found = Vec::new();
    let alternatives = expand(pattern)?;
    for text in &alternatives {
        let parts = Parts::new(text);
        let add = |leaves: Vec<Leaf<'n>>, found: &mut Vec<ParameterMatch<'n>>| {
            let wanted = leaves.into_iter().filter(|leaf| parts.leads_to(&leaf.path));
            found.extend(wanted.map(|leaf| ParameterMatch { leaf, depth: parts.len() }));
        };
        for kind in parts.kinds() {
            match of_kind(node, kind) {
                Ok(leaves) => add(leaves, &mut found),
                // Parameters of the host are known without a file system.
                Err(fault) if parts.texts == ["*"] => {
                    exit::warn(&fault);
                    break;
                }
                Err(fault) => return Err(fault),
            }
        }
        add(of_host(node), &mut found);
    }
    if found.is_empty() {
        return Err(nothing(
            node,
            pattern,
            &Parts::new(alternatives.first().map_or(pattern, String::as_str)),
        ));
    }
    Ok(found)
}

/// `{a,b}.c` as `a.c` and `b.c`.
fn expand(pattern: &str) -> Result<Vec<String>> {
    let mut open = vec![pattern.to_owned()];
    let mut done = Vec::new();
    while let Some(text) = open.pop() {
        let inner = text.find('{').and_then(|start| {
            let end = start + text[start..].find('}')?;
            Some((start, end))
        });
        let Some((start, end)) = inner else {
            done.push(text);
            continue;
        };
        for word in text[start + 1..end].rsplit(',') {
            open.push(format!("{}{word}{}", &text[..start], &text[end + 1..]));
        }
        if open.len() + done.len() > ALTERNATIVES_MAX {
            return Err(Fault::new(Code::BadArgument)
                .what("cannot look for")
                .subject(pattern.to_owned())
                .why(format!("its braces stand for more than {ALTERNATIVES_MAX} patterns")));
        }
    }
    Ok(done)
}

/// Fault for a pattern that matches nothing.
fn nothing(node: &Node, pattern: &str, parts: &Parts) -> Fault {
    let fault = Fault::new(Code::BadArgument).what("no parameter").subject(pattern.to_owned());
    if let Some((_, why)) = ABSENT.iter().find(|(names, _)| names.contains(&parts.last())) {
        return fault.why(*why).next("lctl list_param -R '*' shows what there is");
    }
    let kinds = parts.kinds();
    let Some(kind) = kinds.first() else {
        let first = parts.texts.first().map_or("", String::as_str);
        let known = KINDS.iter().copied().chain(HOST.iter().map(|row| row.name));
        return match nearest(first, known) {
            Some(near) => {
                let rest: String = parts.texts.iter().skip(1).map(|part| format!(".{part}")).collect();
                fault.next(format!("did you mean '{near}{rest}'?"))
            }
            None => fault
                .why(format!("no parameters begin with '{first}'"))
                .next(format!("they begin with: {}; lctl list_param '*'", KINDS.join(", "))),
        };
    };
    if parts.len() > 2 {
        let glob = parts.globs.last();
        let is_known = |kind: &&str| {
            let mut names = names(kind).into_iter();
            names.any(|(name, _, _)| glob.is_some_and(|glob| glob.matches(name.as_bytes())))
        };
        if parts.len() > 3 || !kinds.iter().any(is_known) {
            return unknown_name(fault, kind, parts);
        }
    }
    no_device(fault, node, kind, parts)
}

fn unknown_name(fault: Fault, kind: &'static str, parts: &Parts) -> Fault {
    let device = parts.texts.get(1).map_or("*", String::as_str);
    let of = |kind: &'static str| names(kind).into_iter().map(|(name, _, _)| name);
    if let Some(near) = nearest(parts.last(), of(kind)) {
        return fault.next(format!("did you mean '{kind}.{device}.{near}'?"));
    }
    let elsewhere = KINDS.iter().find(|kind| of(kind).any(|name| name == parts.last()));
    match elsewhere {
        Some(other) => fault.next(format!("did you mean '{other}.*.{}'?", parts.last())),
        None => fault
            .why(format!("{kind}.*.* has no '{}'", parts.last()))
            .next(format!("list those that there are: lctl list_param '{kind}.*.*'")),
    }
}

/// The name is right, and there is no such device.
fn no_device(fault: Fault, node: &Node, kind: &'static str, parts: &Parts) -> Fault {
    let mut devices: Vec<String> = match of_kind(node, kind) {
        Ok(leaves) => leaves.into_iter().filter_map(|leaf| leaf.path.into_iter().nth(1)).collect(),
        Err(fault) => return fault,
    };
    devices.dedup();
    if !devices.is_empty() {
        let named = parts.texts.get(1).map_or("", String::as_str);
        let near = nearest(named, devices.iter().map(String::as_str)).map(str::to_owned);
        let rest: String = parts.texts.iter().skip(2).map(|part| format!(".{part}")).collect();
        let next = near.map_or_else(
            || format!("list them: lctl list_param '{kind}.*'"),
            |near| format!("did you mean '{kind}.{near}{rest}'?"),
        );
        return fault.why(format!("there is no device {kind}.{named} here")).next(next);
    }
    if !["mdt", "obdfilter"].contains(&kind) {
        return fault.why("no mount here answers").next("see which there are: findmnt -t fuse.brindle");
    }
    let here = if kind == "mdt" { "no MDT is served on this host" } else { "no OST is served on this host" };
    let other = if kind == "mdt" { "mdc" } else { "osc" };
    let wanted = if kind == "mdt" { "-MDT" } else { "-OST" };
    let elsewhere: Vec<&str> =
        node.elsewhere().iter().map(String::as_str).filter(|name| name.contains(wanted)).collect();
    let mut why = elsewhere.iter().take(NAMED_MAX).copied().collect::<Vec<&str>>().join(", ");
    if elsewhere.len() > NAMED_MAX {
        why.push_str(", ...");
    }
    let fault = if why.is_empty() { fault.why(here) } else { fault.why(format!("{here}: {why}")) };
    fault.next(format!("run it there; what a mount here sees is in {other}.*"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::place::PlaceArgs;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn patterns_are_globs_of_each_part() {
        let leads = |pattern: &str, to: &str| Parts::new(pattern).leads_to(&path(to));
        for pattern in
            ["osc.*.active", "osc/*/active", "/osc/testfs-OST000?-*/act*", "*.*.*", "osc", "osc.*."]
        {
            assert!(leads(pattern, "osc.testfs-OST0001-osc-ffff000000000039.active"), "{pattern}");
        }
        for pattern in ["osc.*.import", "osc.active", "mdc.*.*", "osc.*.*.*", "os", "osc.[ab]*.active"] {
            assert!(!leads(pattern, "osc.testfs-OST0001-osc-ffff000000000039.active"), "{pattern}");
        }
    }

    #[test]
    fn braces_stand_for_alternatives() {
        assert_eq!(expand("a.{b,c}.{d,e}").expect("few"), ["a.b.d", "a.b.e", "a.c.d", "a.c.e"]);
        assert_eq!(expand("a{b").expect("few"), ["a{b"]);
        assert!(expand(&"{a,b}".repeat(9)).is_err());
    }

    #[test]
    fn what_leads_to_nothing_is_told_with_what_was_meant() {
        let node = Node::new(PlaceArgs::default());
        let next = |pattern: &str| nothing(&node, pattern, &Parts::new(pattern)).next.to_string();
        assert_eq!(next("ocs.*.active"), "did you mean 'osc.*.active'?");
        assert_eq!(next("osc.*.actve"), "did you mean 'osc.*.active'?");
        assert_eq!(next("llite.*.target_obd"), "did you mean 'lmv.*.target_obd'?");
        assert_eq!(next("verson"), "did you mean 'version'?");
        assert!(next("osc.*.colour").starts_with("list those that there are: lctl list_param 'osc.*.*'"));
        let absent = nothing(&node, "osc.*.max_dirty_mb", &Parts::new("osc.*.max_dirty_mb"));
        assert!(absent.why[0].starts_with("Lustre has it; Brindle has nothing of the kind"), "{absent}");
    }
}
