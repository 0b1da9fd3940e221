//! Wildcards of paths and names: `*` and `?` match within one name, `**` also matches slashes, `[...]` matches one of some characters.

/// Longest pattern that is taken, in characters.
pub const PATTERN_MAX: usize = 1024;

enum Piece {
    One(char),
    Any,
    Many,
    Deep,
    Set(Vec<(char, char)>, bool),
}

impl Piece {
    fn is(&self, c: char) -> bool {
        match self {
            Piece::One(wanted) => *wanted == c,
            Piece::Any => c != '/',
            Piece::Set(ranges, negated) => {
                c != '/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Piece::Many | Piece::Deep => false,
        }
    }
}

fn pieces(pattern: &str) -> Vec<Piece> {
    let chars: Vec<char> = pattern.chars().take(PATTERN_MAX).collect();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        at += 1;
        out.push(match c {
            '*' if chars.get(at) == Some(&'*') => {
                while chars.get(at) == Some(&'*') {
                    at += 1;
                }
                Piece::Deep
            }
            '*' => Piece::Many,
            '?' => Piece::Any,
            '[' => match set(&chars[at..]) {
                Some((piece, used)) => {
                    at += used;
                    piece
                }
                None => Piece::One('['),
            },
            '\\' if at < chars.len() => {
                at += 1;
                Piece::One(chars[at - 1])
            }
            other => Piece::One(other),
        });
    }
    out
}

fn set(chars: &[char]) -> Option<(Piece, usize)> {
    let negated = matches!(chars.first(), Some('!' | '^'));
    let first = usize::from(negated);
    let close = first + 1 + chars.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let (mut ranges, mut at) = (Vec::new(), first);
    while at < close {
        let is_range = at + 2 < close && chars[at + 1] == '-';
        let high = if is_range { chars[at + 2] } else { chars[at] };
        ranges.push((chars[at], high));
        at += if is_range { 3 } else { 1 };
    }
    Some((Piece::Set(ranges, negated), close + 1))
}

/// Whether a text is one that a pattern stands for. Takes (length of the pattern) x (length of the text) steps at most.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pieces = pieces(pattern);
    let text: Vec<char> = text.chars().collect();
    // Which lengths of the text the pieces so far can stand for.
    let mut reach = vec![false; text.len() + 1];
    reach[0] = true;
    for piece in &pieces {
        let mut next = vec![false; text.len() + 1];
        match piece {
            Piece::Many | Piece::Deep => {
                for at in 0..=text.len() {
                    let goes_on =
                        at > 0 && next[at - 1] && (matches!(piece, Piece::Deep) || text[at - 1] != '/');
                    next[at] = reach[at] || goes_on;
                }
            }
            one => {
                for (at, c) in text.iter().enumerate() {
                    next[at + 1] = reach[at] && one.is(*c);
                }
            }
        }
        reach = next;
    }
    reach[text.len()]
}

/// Whether a pattern has wildcards at all.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_in_a_name_and_double_ones_do_not() {
        let yes = [
            ("/a/*/c", "/a/b/c"),
            ("/a/**/c", "/a/b/x/c"),
            ("/a/**", "/a/b"),
            ("*.o", "x.o"),
            ("ckpt.[0-9]*", "ckpt.17"),
            ("[!a]", "b"),
            ("a\\*", "a*"),
            ("[", "["),
            ("", ""),
        ];
        for (pattern, text) in yes {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        let no = [("/a/*", "/a/b/c"), ("?", "/"), ("*.o", "x.c"), ("[!a]", "/"), ("a", ""), ("[0-9]", "x")];
        for (pattern, text) in no {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
        assert!(!matches(&"*a".repeat(400), &"b".repeat(2000)));
    }
}
