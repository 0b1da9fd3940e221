//! Text to words: comments, strings, variables, includes.
//!
//! The surface is Robinhood's: `#` begins a comment, strings stand in either kind of quotes, `%include "FILE"` is relative to the file
//! that has it, and `$NAME` or `${NAME}` is replaced in words and strings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use brindle_types::{Code, Fault, Result};

/// Deepest nesting of includes.
pub const INCLUDES_MAX: usize = 16;
/// Most words of a text with everything that it includes.
pub const WORDS_MAX: usize = 200_000;
/// Longest text of one file in bytes.
pub const TEXT_BYTES_MAX: usize = 4 << 20;

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pos {
    /// The file.
    pub file: Arc<str>,
    /// Line of the position, from 1.
    pub line: u32,
    /// The character in the line, from 1.
    pub column: u32,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

impl Pos {
    /// The refusal of what stands here.
    pub fn wrong(&self, why: impl Into<String>) -> Fault {
        Fault::new(Code::BadPolicy)
            .what("cannot use the policy text at")
            .subject(self.to_string())
            .why(why.into())
            .data("nothing of it was carried out")
    }
}

/// Kind of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A bare word: a key, a number with its unit, a path.
    Word,
    /// A word in quotes.
    Quoted,
    /// Braces, parentheses, `;`, `,`, `=` and comparisons.
    Sign,
    /// The end of the text.
    End,
}

/// A word of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Kind of the word.
    pub kind: Kind,
    /// Text of the token, without quotes and with variables replaced.
    pub text: String,
    /// Where it begins.
    pub pos: Pos,
}

impl Token {
    /// Whether it is this sign.
    pub fn is_sign(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && self.text == sign
    }

    /// Whether it is this key word, in upper or lower case.
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    /// As a message shows it.
    pub fn shown(&self) -> String {
        match self.kind {
            Kind::End => "the end of the text".to_owned(),
            _ => format!("'{}'", self.text),
        }
    }
}

/// Reads a file: its name, and the directory of the file that includes it.
pub type Read<'a> = dyn Fn(&str, Option<&str>) -> std::result::Result<Text, String> + 'a;

/// Where texts and variables come from.
pub struct Source<'a> {
    /// Reads files.
    pub read: &'a Read<'a>,
    /// Variables that were given with `--define`; they come first.
    pub defines: &'a BTreeMap<String, String>,
    /// Variables of the environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

/// A file.
pub struct Text {
    /// The name by which it is shown, and told from others.
    pub name: String,
    /// The directory of its includes.
    pub dir: String,
    /// Text of the file.
    pub text: String,
}

impl Source<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.defines.get(name).cloned().or_else(|| (self.environment)(name))
    }
}

/// All words of a file and of what it includes.
pub fn words(source: &Source<'_>, file: &str) -> Result<Vec<Token>> {
    let start = Pos { file: file.into(), line: 1, column: 1 };
    let text = (source.read)(file, None).map_err(|why| start.wrong(why))?;
    let mut all = Vec::new();
    let mut open = Vec::new();
    add(source, text, &start, &mut open, &mut all)?;
    let end = all.last().map_or(start, |last: &Token| last.pos.clone());
    all.push(Token { kind: Kind::End, text: String::new(), pos: end });
    Ok(all)
}

fn add(
    source: &Source<'_>,
    text: Text,
    from: &Pos,
    open: &mut Vec<String>,
    all: &mut Vec<Token>,
) -> Result<()> {
    if open.contains(&text.name) {
        return Err(from.wrong(format!("'{}' includes itself: {}", text.name, open.join(" -> "))));
    }
    if open.len() >= INCLUDES_MAX {
        return Err(from.wrong(format!("includes are nested deeper than {INCLUDES_MAX}")));
    }
    if text.text.len() > TEXT_BYTES_MAX {
        return Err(from.wrong(format!("'{}' is larger than {TEXT_BYTES_MAX} bytes", text.name)));
    }
    open.push(text.name.clone());
    let mut lexer = Lexer::new(source, &text);
    while let Some(token) = lexer.next()? {
        if token.kind == Kind::Word && token.text.eq_ignore_ascii_case("%include") {
            let name = lexer.next()?.filter(|name| name.kind == Kind::Quoted);
            let name = name.ok_or_else(|| token.pos.wrong("%include needs a file name in quotes"))?;
            let included = (source.read)(&name.text, Some(&text.dir)).map_err(|why| name.pos.wrong(why))?;
            add(source, included, &name.pos, open, all)?;
            continue;
        }
        if all.len() >= WORDS_MAX {
            return Err(token.pos.wrong(format!("the text has more than {WORDS_MAX} words")));
        }
        all.push(token);
    }
    open.pop();
    Ok(())
}

struct Lexer<'a> {
    source: &'a Source<'a>,
    file: Arc<str>,
    chars: Vec<char>,
    at: usize,
    line: u32,
    column: u32,
}

/// Signs of one character; comparisons are looked for first.
const SIGNS: &str = "{}();,=<>!";
/// Signs of two characters.
const PAIRS: [&str; 5] = ["==", "!=", "<>", ">=", "<="];

impl<'a> Lexer<'a> {
    fn new(source: &'a Source<'a>, text: &'a Text) -> Lexer<'a> {
        Lexer {
            source,
            file: text.name.as_str().into(),
            chars: text.text.chars().collect(),
            at: 0,
            line: 1,
            column: 1,
        }
    }

    fn pos(&self) -> Pos {
        Pos { file: self.file.clone(), line: self.line, column: self.column }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        Some(c)
    }

    /// Blanks and comments.
    fn skip(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.take();
                }
            } else if !c.is_whitespace() && c != '\u{feff}' {
                return;
            }
            self.take();
        }
    }

    fn next(&mut self) -> Result<Option<Token>> {
        self.skip();
        let pos = self.pos();
        let Some(c) = self.peek() else { return Ok(None) };
        if c == '"' || c == '\'' {
            return self.quoted(c, pos).map(Some);
        }
        if SIGNS.contains(c) {
            let pair: String = self.chars[self.at..].iter().take(2).collect();
            let text = if PAIRS.contains(&pair.as_str()) { pair } else { c.to_string() };
            for _ in text.chars() {
                self.take();
            }
            return Ok(Some(Token { kind: Kind::Sign, text, pos }));
        }
        let mut raw = String::new();
        while let Some(c) = self.peek() {
            let is_braced = raw.ends_with('$') && c == '{';
            if is_braced {
                while let Some(c) = self.peek().filter(|c| !c.is_whitespace()) {
                    raw.push(c);
                    self.take();
                    if c == '}' {
                        break;
                    }
                }
                continue;
            }
            if c.is_whitespace() || SIGNS.contains(c) || "\"'#".contains(c) {
                break;
            }
            raw.push(c);
            self.take();
        }
        let text = self.replaced(&raw, &pos)?;
        Ok(Some(Token { kind: Kind::Word, text, pos }))
    }

    fn quoted(&mut self, quote: char, pos: Pos) -> Result<Token> {
        self.take();
        let mut raw = String::new();
        loop {
            match self.take() {
                Some(c) if c == quote => break,
                Some('\n') | None => return Err(pos.wrong("this string has no end in its line")),
                Some(c) => raw.push(c),
            }
        }
        let text = self.replaced(&raw, &pos)?;
        Ok(Token { kind: Kind::Quoted, text, pos })
    }

    /// A text with its variables replaced.
    fn replaced(&self, raw: &str, pos: &Pos) -> Result<String> {
        let mut out = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            let (inner, is_braced) = rest.strip_prefix('{').map_or((rest, false), |inner| (inner, true));
            let len = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(inner.len());
            let name = &inner[..len];
            if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                out.push('$');
                continue;
            }
            if is_braced && !inner[len..].starts_with('}') {
                return Err(pos.wrong(format!("the variable '${{{name}' has no '}}'")));
            }
            let value = self.source.variable(name).ok_or_else(|| {
                pos.wrong(format!("the variable {name} is not set"))
                    .next(format!("set it: --define {name}=VALUE, or in the environment"))
            })?;
            out.push_str(&value);
            rest = &inner[len + usize::from(is_braced)..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// A sum over the words: two texts with the same one mean the same, whatever their comments and spacing are.
pub fn sum(words: &[Token]) -> String {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(&[word.kind as u8]);
        hasher.update(&(word.text.len() as u64).to_le_bytes());
        hasher.update(word.text.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// A source for tests and for one text without files.
#[cfg(test)]
pub(crate) fn words_of(text: &str) -> Result<Vec<Token>> {
    let read = |_: &str, _: Option<&str>| {
        Ok(Text { name: "t.conf".into(), dir: String::new(), text: text.to_owned() })
    };
    let source = Source { read: &read, defines: &BTreeMap::new(), environment: &|_| None };
    words(&source, "t.conf")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[Token]) -> Vec<&str> {
        words.iter().map(|word| word.text.as_str()).collect()
    }

    fn read(name: &str, from: Option<&str>) -> std::result::Result<Text, String> {
        let text = match name {
            "main" => "# -*- mode: c -*-\na = $X; %include \"sub/${Y}.inc\" c{d>=\"e f\"}#end",
            "sub/y.inc" => "b <> 66% ; %include \"deep\"",
            "deep" if from == Some("sub") => "path == \"/a/${Y}*\"",
            "loop" => "%include 'loop'",
            "unset" => "\n  k = \"$NOBODY\";",
            other => return Err(format!("there is no file '{other}'")),
        };
        let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
        Ok(Text { name: name.to_owned(), dir: dir.to_owned(), text: text.to_owned() })
    }

    fn try_words(file: &str) -> Result<Vec<Token>> {
        let defines = BTreeMap::from([("X".to_owned(), "yes".to_owned())]);
        let environment = |name: &str| (name == "Y").then(|| "y".to_owned());
        words(&Source { read: &read, defines: &defines, environment: &environment }, file)
    }

    #[test]
    fn includes_variables_and_comments() {
        let words = try_words("main").unwrap();
        let expected = [
            "a", "=", "yes", ";", "b", "<>", "66%", ";", "path", "==", "/a/y*", "c", "{", "d", ">=", "e f",
            "}", "",
        ];
        assert_eq!(texts(&words), expected);
        assert_eq!(words[4].pos.to_string(), "sub/y.inc:1:1");
        assert_eq!(words[11].pos.to_string(), "main:2:33");
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let why = |file: &str| try_words(file).unwrap_err().to_string();
        assert!(why("loop").contains("loop:1:10") && why("loop").contains("includes itself"));
        let unset = why("unset");
        assert!(
            unset.contains("unset:2:7")
                && unset.contains("NOBODY")
                && unset.contains("--define NOBODY=VALUE")
        );
        assert!(why("none").contains("there is no file 'none'"));
        let open = words_of("a = \"b\nc").unwrap_err().to_string();
        assert!(open.contains("t.conf:1:5"), "{open}");
    }

    #[test]
    fn sums_do_not_see_comments_and_see_words() {
        let sum_of = |text: &str| sum(&words_of(text).unwrap());
        assert_eq!(sum_of("a = 1; # x"), sum_of("a=1;"));
        assert_ne!(sum_of("a = 1;"), sum_of("a = 2;"));
        assert_ne!(sum_of("ab c"), sum_of("a bc"));
    }
}
