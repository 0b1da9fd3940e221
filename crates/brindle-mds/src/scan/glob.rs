//! Globs as in fnmatch(3), for names: bytes that are UTF-8 count as characters, others as themselves.

/// A piece of a glob that matches one character, or any number of them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// A character that stands for itself.
    One(u32),
    /// `?`.
    Any,
    /// `*`.
    Many,
    /// `[...]`: ranges, and whether it is one that must not match.
    Set(Vec<(u32, u32)>, bool),
}

/// A compiled glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    pieces: Vec<Piece>,
    fold_case: bool,
}

/// First number of bytes that are no part of UTF-8; characters are below.
const RAW_BYTE: u32 = 0x11_0000;

/// Characters of a name.
fn characters(bytes: &[u8]) -> Vec<u32> {
    let mut out = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.extend(chunk.valid().chars().map(u32::from));
        out.extend(chunk.invalid().iter().map(|b| RAW_BYTE + u32::from(*b)));
    }
    out
}

/// The lower case of a character that has one.
fn fold(c: u32) -> u32 {
    let mut lower = char::from_u32(c).into_iter().flat_map(char::to_lowercase);
    match (lower.next(), lower.next()) {
        (Some(one), None) => one.into(),
        _ => c,
    }
}

impl Glob {
    /// Compiles a glob. A `[` without its `]` and a last `\` stand for themselves.
    pub fn new(glob: &[u8], fold_case: bool) -> Glob {
        let text = characters(glob);
        let mut pieces = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(&c) = text.get(at) {
            at += 1;
            let piece = match char::from_u32(c) {
                Some('*') => Piece::Many,
                Some('?') => Piece::Any,
                Some('[') => match set(&text[at..], fold_case) {
                    Some((piece, used)) => {
                        at += used;
                        piece
                    }
                    None => Piece::One(c),
                },
                Some('\\') if at < text.len() => {
                    at += 1;
                    Piece::One(if fold_case { fold(text[at - 1]) } else { text[at - 1] })
                }
                _ => Piece::One(if fold_case { fold(c) } else { c }),
            };
            if piece != Piece::Many || pieces.last() != Some(&Piece::Many) {
                pieces.push(piece);
            }
        }
        Glob { pieces, fold_case }
    }

    /// Whether a name matches, in at most (length of the glob) x (length of the name) steps.
    pub fn matches(&self, name: &[u8]) -> bool {
        if name.is_ascii() {
            let lower = |at: usize| u32::from(name[at].to_ascii_lowercase());
            let exact = |at: usize| u32::from(name[at]);
            return if self.fold_case { self.run(name.len(), lower) } else { self.run(name.len(), exact) };
        }
        let mut text = characters(name);
        if self.fold_case {
            text.iter_mut().for_each(|c| *c = fold(*c));
        }
        self.run(text.len(), |at| text[at])
    }

    fn run(&self, len: usize, character: impl Fn(usize) -> u32) -> bool {
        let (mut piece, mut at) = (0, 0);
        // Resume point after the last star, one character later each time that the rest does not match.
        let mut star: Option<(usize, usize)> = None;
        while at < len {
            match self.pieces.get(piece) {
                Some(Piece::Many) => {
                    star = Some((piece, at));
                    piece += 1;
                }
                Some(one) if one.is(character(at)) => {
                    piece += 1;
                    at += 1;
                }
                _ => match star {
                    Some((many, from)) => {
                        star = Some((many, from + 1));
                        (piece, at) = (many + 1, from + 1);
                    }
                    None => return false,
                },
            }
        }
        self.pieces[piece..].iter().all(|p| *p == Piece::Many)
    }
}

impl Piece {
    fn is(&self, c: u32) -> bool {
        match self {
            Piece::One(wanted) => *wanted == c,
            Piece::Any => true,
            Piece::Many => false,
            Piece::Set(ranges, negated) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Set that follows a `[`, and its length in characters with the `]`; `None` without a `]`.
fn set(text: &[u32], fold_case: bool) -> Option<(Piece, usize)> {
    let is = |c: u32, wanted: &str| char::from_u32(c).is_some_and(|c| wanted.contains(c));
    let mut at = 0;
    let negated = text.first().is_some_and(|c| is(*c, "!^"));
    at += usize::from(negated);
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let first = at;
    loop {
        let c = *text.get(at)?;
        if is(c, "]") && at > first {
            break;
        }
        if is(c, "[") && text.get(at + 1).is_some_and(|c| is(*c, ":")) {
            let (class, used) = class(&text[at + 2..])?;
            ranges.extend(class);
            at += 2 + used;
            continue;
        }
        let (low, used) = member(&text[at..])?;
        at += used;
        let is_range =
            text.get(at).is_some_and(|c| is(*c, "-")) && !text.get(at + 1).is_some_and(|c| is(*c, "]"));
        let high = if is_range {
            let (high, used) = member(&text[at + 1..])?;
            at += 1 + used;
            high
        } else {
            low
        };
        ranges.push((low, high));
    }
    if fold_case {
        let folded: Vec<(u32, u32)> = ranges.iter().map(|(low, high)| (fold(*low), fold(*high))).collect();
        ranges.extend(folded);
    }
    Some((Piece::Set(ranges, negated), at + 1))
}

/// One member of a set; `\` escapes a special character.
fn member(text: &[u32]) -> Option<(u32, usize)> {
    match text {
        [first, second, ..] if *first == u32::from('\\') => Some((*second, 2)),
        [first, ..] => Some((*first, 1)),
        [] => None,
    }
}

/// A class such as `alpha:]`, in ASCII, and how many characters it takes; `None` if there is none of this name.
fn class(text: &[u32]) -> Option<(Vec<(u32, u32)>, usize)> {
    let end = text.windows(2).position(|w| w == [u32::from(':'), u32::from(']')])?;
    let name: String = text[..end].iter().filter_map(|c| char::from_u32(*c)).collect();
    let ranges: &[(char, char)] = match name.as_str() {
        "alpha" => &[('a', 'z'), ('A', 'Z')],
        "digit" => &[('0', '9')],
        "alnum" => &[('a', 'z'), ('A', 'Z'), ('0', '9')],
        "lower" => &[('a', 'z')],
        "upper" => &[('A', 'Z')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "xdigit" => &[('0', '9'), ('a', 'f'), ('A', 'F')],
        _ => return None,
    };
    Some((ranges.iter().map(|(low, high)| (u32::from(*low), u32::from(*high))).collect(), end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_the_shell() {
        let yes = [
            ("*", ""),
            ("*", ".hidden"),
            ("*.c", "main.c"),
            ("a*b*c", "aXXbYYbZc"),
            ("?", "\u{e4}"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[^a]", "b"),
            ("[]]", "]"),
            ("[a-]", "-"),
            ("[[:digit:]]*", "7seas"),
            ("[[:alpha:]_-]", "-"),
            ("\\*", "*"),
            ("[", "["),
            ("a[b", "a[b"),
            ("\\", "\\"),
            ("[\\]]", "]"),
        ];
        for (glob, name) in yes {
            assert!(Glob::new(glob.as_bytes(), false).matches(name.as_bytes()), "{glob} {name}");
        }
        let no =
            [("", "a"), ("?", ""), ("?", "ab"), ("*.c", "main.h"), ("[a-c]", "d"), ("\\*", "a"), ("A", "a")];
        for (glob, name) in no {
            assert!(!Glob::new(glob.as_bytes(), false).matches(name.as_bytes()), "{glob} {name}");
        }
        assert!(Glob::new(b"*.TXT", true).matches(b"Read.txt"));
        assert!(Glob::new("\u{c4}B*".as_bytes(), true).matches("\u{e4}bc".as_bytes()));
        assert!(Glob::new(b"[A-C]", true).matches(b"b"));
        assert!(Glob::new(b"?\xff", false).matches(b"\xfe\xff"));
    }

    #[test]
    fn many_stars_do_not_take_long() {
        let glob = Glob::new("*a".repeat(500).as_bytes(), false);
        assert!(!glob.matches(&[b'a'; 255]));
    }
}
