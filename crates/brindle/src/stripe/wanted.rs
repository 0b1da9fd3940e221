//! Layout options of the command line. The order of the options matters: options behind an `-E` belong to
//! its component.

use brindle_admin::osts::ost_list;
use brindle_types::layout::{ComponentPolicy, EOF};
use brindle_types::units::parse_bytes;
use brindle_types::{Code, Fault, LayoutPolicy, PoolChoice, Result, StripePolicy};
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches};

use crate::completion::live;

/// Limit below which a bare number is in KiB, as in lfs.
const BARE_KIB_BELOW: u64 = 4096;

const COUNT: &str = "stripe-count";
const SIZE: &str = "stripe-size";
const INDEX: &str = "stripe-index";
const LIST: &str = "ost-list";
const POOL: &str = "pool";
const END: &str = "component-end";
const PATTERN: &str = "layout";

/// Wanted layout, in the order in which it was given; missing options are inherited.
#[derive(Clone, Debug, Default)]
pub struct PolicyArgs {
    wishes: Vec<Wish>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wish {
    Count(i32),
    Size(u32),
    Index(i32),
    Osts(Vec<u16>),
    Pool(Option<PoolChoice>),
    End(u64),
    Pattern(String),
}

fn stripe_size(text: &str) -> std::result::Result<u32, String> {
    let mut bytes = parse_bytes(text)?;
    let bare = text.bytes().all(|b| b.is_ascii_digit());
    if bare && bytes < BARE_KIB_BELOW {
        bytes *= 1024;
    }
    u32::try_from(bytes).map_err(|_| "a stripe has at most 1GiB".to_owned())
}

fn component_end(text: &str) -> std::result::Result<u64, String> {
    match text {
        "-1" | "eof" | "EOF" => Ok(EOF),
        _ => parse_bytes(text),
    }
}

/// `None`: what is inherited.
fn pool(text: &str) -> std::result::Result<Option<PoolChoice>, String> {
    match text {
        "" | "inherit" => Ok(None),
        "none" | "ignore" => Ok(Some(PoolChoice::All)),
        _ => Ok(Some(PoolChoice::Named(text.parse()?))),
    }
}

impl PolicyArgs {
    /// Policy for the MDT.
    pub fn policy(&self) -> Result<LayoutPolicy> {
        let refuse = |what: &str, why: &str| {
            Err(Fault::new(Code::BadArgument)
                .what("cannot lay out with")
                .subject(what.to_owned())
                .why(why.to_owned()))
        };
        let mut policy = LayoutPolicy::default();
        let mut in_mdt = Vec::new();
        for wish in &self.wishes {
            if let Wish::End(end_bytes) = wish {
                policy
                    .components
                    .push(ComponentPolicy { end_bytes: *end_bytes, stripe: StripePolicy::default() });
                in_mdt.push(false);
                continue;
            }
            let stripe = policy.components.last_mut().map_or(&mut policy.stripe, |part| &mut part.stripe);
            let twice = match wish {
                Wish::Count(count) => stripe.count.replace(*count).is_some(),
                Wish::Size(size) => stripe.size_bytes.replace(*size).is_some(),
                Wish::Index(index) => stripe.start_ost.replace(*index).is_some(),
                Wish::Pool(None) => false,
                Wish::Pool(Some(pool)) => stripe.pool.replace(pool.clone()).is_some(),
                Wish::Osts(osts) => {
                    stripe.osts.extend(osts);
                    false
                }
                Wish::Pattern(pattern) => match (pattern.as_str(), in_mdt.len()) {
                    ("raid0", _) => false,
                    ("mdt", 1) => std::mem::replace(&mut in_mdt[0], true),
                    ("mdt", _) => return refuse("-L mdt", "only a first component (-E) can lie in the MDT"),
                    _ => return refuse(&format!("-L {pattern}"), "layouts are raid0 and mdt"),
                },
                Wish::End(_) => false,
            };
            if twice {
                return refuse(
                    "an option that is given twice",
                    "each can be given once, or once behind each -E",
                );
            }
        }
        if in_mdt.first() == Some(&true) {
            // Small files lie in the MDT anyway; what is larger begins in the next component.
            policy.components.remove(0);
            if policy.components.is_empty() {
                return refuse("-L mdt", "what does not fit in the MDT needs a component, too: add -E -1");
            }
        }
        if policy.components.is_empty() || policy.stripe == StripePolicy::default() {
            return Ok(policy);
        }
        refuse("options in front of -E", "behind an -E they are of its component")
    }
}

impl clap::FromArgMatches for PolicyArgs {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<PolicyArgs, clap::Error> {
        let mut found: Vec<(usize, Wish)> = Vec::new();
        fn collect<T: Clone + Send + Sync + 'static>(
            matches: &ArgMatches,
            id: &str,
            found: &mut Vec<(usize, Wish)>,
            wish: impl Fn(T) -> Wish,
        ) {
            let values = matches.get_many::<T>(id).into_iter().flatten();
            let places = matches.indices_of(id).into_iter().flatten();
            found.extend(places.zip(values).map(|(place, value)| (place, wish(value.clone()))));
        }
        collect(matches, COUNT, &mut found, Wish::Count);
        collect(matches, SIZE, &mut found, Wish::Size);
        collect(matches, INDEX, &mut found, Wish::Index);
        collect(matches, LIST, &mut found, Wish::Osts);
        collect(matches, POOL, &mut found, Wish::Pool);
        collect(matches, END, &mut found, Wish::End);
        collect(matches, PATTERN, &mut found, Wish::Pattern);
        found.sort_by_key(|(place, _)| *place);
        Ok(PolicyArgs { wishes: found.into_iter().map(|(_, wish)| wish).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = PolicyArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for PolicyArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let option =
            |id: &'static str, short: char, name: &'static str, help: &'static str, parser: ValueParser| {
                Arg::new(id)
                    .short(short)
                    .long(id)
                    .value_name(name)
                    .help(help)
                    .value_parser(parser)
                    .allow_hyphen_values(true)
                    .action(ArgAction::Append)
            };
        let number = || ValueParser::from(clap::value_parser!(i32));
        let count =
            option(COUNT, 'c', "N", "Number of stripes; -1 for all OSTs, 0 for the default", number());
        let size_help = "Stripe size: a multiple of 64KiB; 0 for the default";
        let size = option(SIZE, 'S', "SIZE", size_help, ValueParser::new(stripe_size));
        let index = option(INDEX, 'i', "INDEX", "Index of the first OST; -1 for any", number());
        let list_help = "These OSTs, a stripe on each: 1,2-4,7";
        let list = option(LIST, 'o', "INDICES", list_help, ValueParser::new(ost_list));
        let pool_help = "OSTs of this pool only; 'none': of the whole file system; 'inherit': of the pool that is inherited";
        let pool = option(POOL, 'p', "POOL", pool_help, ValueParser::new(pool));
        let end_help = "End of a component: the options behind it are its own; -1 for the end of the file";
        let end = option(END, 'E', "END", end_help, ValueParser::new(component_end));
        let pattern_help = "raid0, or mdt for a first component (small files always begin in the MDT)";
        let pattern = option(PATTERN, 'L', "LAYOUT", pattern_help, ValueParser::string());
        let group =
            ArgGroup::new("policy").multiple(true).args([COUNT, SIZE, INDEX, LIST, POOL, END, PATTERN]);
        command
            .arg(count.visible_alias("count"))
            .arg(size.visible_alias("size"))
            .arg(index.visible_aliases(["index", "start-ost"]).add(live::ost_indices()))
            .arg(list.visible_alias("ost").add(live::ost_indices()))
            .arg(pool.add(live::pools()))
            .arg(end)
            .arg(pattern)
            .group(group)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        PolicyArgs::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    fn policy(words: &str) -> Result<LayoutPolicy> {
        let command = PolicyArgs::augment_args(clap::Command::new("t").no_binary_name(true));
        let matches = command.try_get_matches_from(words.split_whitespace()).expect("good words");
        PolicyArgs::from_arg_matches(&matches).expect("parsed").policy()
    }

    fn stripe(count: Option<i32>, size_bytes: Option<u32>) -> StripePolicy {
        StripePolicy { count, size_bytes, ..Default::default() }
    }

    #[test]
    fn values_are_read_as_lfs_reads_them() {
        assert_eq!(stripe_size("64"), Ok(65536));
        assert_eq!(stripe_size("4096"), Ok(4096));
        assert_eq!(stripe_size("1M"), Ok(1 << 20));
        assert_eq!(stripe_size("65536"), Ok(65536));
        assert!(stripe_size("8G").is_err());
        assert!(stripe_size("many").is_err());
        assert_eq!(component_end("eof"), Ok(EOF));
        assert_eq!(component_end("64M"), Ok(64 << 20));
        assert_eq!(ost_list("1,3-5,0"), Ok(vec![1, 3, 4, 5, 0]));
        for wrong in ["", "a", "3-1", "1,,2", "0-65535"] {
            assert!(ost_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_are_of_the_component_in_front_of_them() {
        assert_eq!(policy("-c 4 -S 64K").expect("good"), stripe(Some(4), Some(65536)).into());
        let got = policy("-E 64M -c 1 -S 1M -E 1G -c 4 -E -1 -c -1 -S 4M").expect("good");
        let parts: Vec<_> = got.components.iter().map(|p| (p.end_bytes, p.stripe.clone())).collect();
        let expected = [
            (64 << 20, stripe(Some(1), Some(1 << 20))),
            (1 << 30, stripe(Some(4), None)),
            (EOF, stripe(Some(-1), Some(4 << 20))),
        ];
        assert_eq!(parts, expected);
        let with_mdt = policy("-E 64K -L mdt -E eof -c 2").expect("good");
        assert_eq!(with_mdt.components, [ComponentPolicy { end_bytes: EOF, stripe: stripe(Some(2), None) }]);
        assert_eq!(policy("-o 1,2 -o 0").expect("good").stripe.osts, [1, 2, 0]);
    }

    #[test]
    fn pools_are_of_their_component() {
        let pools = |words: &str| -> Vec<Option<PoolChoice>> {
            policy(words).expect("good").components.into_iter().map(|part| part.stripe.pool).collect()
        };
        let flash = Some(PoolChoice::Named("flash".parse().expect("good")));
        assert_eq!(pools("-E 1M -p flash -E -1 -p none"), [flash.clone(), Some(PoolChoice::All)]);
        assert_eq!(pools("-E 1M -p inherit -E -1 -p flash"), [None, flash.clone()]);
        assert_eq!(policy("-p flash -c 2").expect("good").stripe.pool, flash);
        assert!(pool("sixteen_letters_").is_err() && pool("a.b").is_err());
        assert_eq!(policy("-p a -p b").expect_err("twice").code, Code::BadArgument);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [
            "-c 1 -c 2",
            "-E 1M -c 1 -c 2 -E -1",
            "-c 1 -E -1",
            "-L mdt",
            "-E 1M -E -1 -L mdt",
            "-L raid6",
            "-E 1M -L mdt",
        ] {
            assert_eq!(policy(words).expect_err(words).code, Code::BadArgument, "{words}");
        }
    }
}
