//! Words to blocks: `NAME [TITLE] { ... }`, settings `KEY = VALUE[(ARGUMENT, ...)], ... ;` and boolean expressions.

use brindle_types::Result;

use crate::condition::{self, Condition};
use crate::lex::{Kind, Pos, Token};

/// Deepest nesting of blocks.
const DEPTH_MAX: usize = 32;
/// Blocks whose contents are an expression.
const EXPRESSIONS: [&str; 5] = ["condition", "definition", "scope", "ignore", "whitelist_entry"];

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    /// Key word of the block, as it was written.
    pub key: Token,
    /// Title of the block, where it has one.
    pub title: Option<Token>,
    /// The statements in the block.
    pub body: Body,
}

/// A statement in a block.
#[derive(Clone, Debug)]
pub enum Body {
    /// Settings and blocks.
    Items(Vec<Item>),
    /// An expression.
    Condition(Condition),
    /// Words that are not looked at.
    Skipped,
}

/// Something in a block.
#[derive(Clone, Debug)]
pub enum Item {
    /// A setting.
    Set(Set),
    /// A block.
    Block(Block),
}

/// A setting.
#[derive(Clone, Debug)]
pub struct Set {
    /// Key of the setting.
    pub key: Token,
    /// Values of the setting, at least one.
    pub values: Vec<Value>,
}

/// A value, with its arguments.
#[derive(Clone, Debug)]
pub struct Value {
    /// The value.
    pub word: Token,
    /// Whether it has parentheses.
    pub is_call: bool,
    /// The words in the brackets.
    pub arguments: Vec<Token>,
}

/// Words with a place in them.
pub struct Words<'a> {
    words: &'a [Token],
    at: usize,
}

impl<'a> Words<'a> {
    /// All of them; the last one is [`Kind::End`].
    pub fn new(words: &'a [Token]) -> Words<'a> {
        Words { words, at: 0 }
    }

    /// The next word, which stays.
    pub fn peek(&self) -> &'a Token {
        &self.words[self.at.min(self.words.len() - 1)]
    }

    /// The word behind the next one.
    pub fn peek_second(&self) -> &'a Token {
        &self.words[(self.at + 1).min(self.words.len() - 1)]
    }

    /// Takes the next word; the end stays.
    pub fn take(&mut self) -> &'a Token {
        let token = self.peek();
        self.at = (self.at + 1).min(self.words.len() - 1);
        token
    }

    /// Takes a sign that must be here.
    pub fn sign(&mut self, sign: &str, behind: &str) -> Result<&'a Token> {
        match self.peek() {
            token if token.is_sign(sign) => Ok(self.take()),
            token => Err(token.pos.wrong(format!("'{sign}' is missing {behind}; here is {}", token.shown()))),
        }
    }

    /// Takes a sign if it is here.
    pub fn has_sign(&mut self, sign: &str) -> bool {
        let is_here = self.peek().is_sign(sign);
        if is_here {
            self.take();
        }
        is_here
    }

    /// Takes a word or a string that must be here.
    pub fn value(&mut self, what: &str) -> Result<&'a Token> {
        match self.peek() {
            token if matches!(token.kind, Kind::Word | Kind::Quoted) => Ok(self.take()),
            token => Err(token.pos.wrong(format!("{what} is missing; here is {}", token.shown()))),
        }
    }
}

/// Reads the blocks of a text. `is_skipped` says of which outermost blocks the contents are not looked at.
pub fn blocks(words: &[Token], is_skipped: &dyn Fn(&str) -> bool) -> Result<Vec<Block>> {
    let mut words = Words::new(words);
    let mut all = Vec::new();
    while words.peek().kind != Kind::End {
        if words.has_sign(";") {
            continue;
        }
        all.push(block(&mut words, is_skipped, 0)?);
    }
    Ok(all)
}

fn block(words: &mut Words<'_>, is_skipped: &dyn Fn(&str) -> bool, depth: usize) -> Result<Block> {
    let key = words.value("the name of a block")?.clone();
    if depth >= DEPTH_MAX {
        return Err(key.pos.wrong(format!("blocks are nested deeper than {DEPTH_MAX}")));
    }
    let title = match words.peek().is_sign("{") {
        true => None,
        false if words.peek().kind == Kind::Sign || words.peek().kind == Kind::End => None,
        false => Some(words.take().clone()),
    };
    let open = words.sign("{", &format!("behind the block's name '{}'", key.text))?;
    if depth == 0 && is_skipped(&key.text) {
        skip(words, &open.pos)?;
        return Ok(Block { key, title, body: Body::Skipped });
    }
    if EXPRESSIONS.iter().any(|name| key.is_word(name)) {
        let condition = condition::parse(words)?;
        words.sign("}", "behind the condition")?;
        return Ok(Block { key, title, body: Body::Condition(condition) });
    }
    let mut items = Vec::new();
    loop {
        if words.has_sign("}") {
            return Ok(Block { key, title, body: Body::Items(items) });
        }
        if words.has_sign(";") {
            continue;
        }
        if words.peek().kind == Kind::End {
            return Err(open.pos.wrong(format!("the block '{}' has no '}}'", key.text)));
        }
        items.push(match words.peek_second().is_sign("=") {
            true => Item::Set(set(words)?),
            false => Item::Block(block(words, is_skipped, depth + 1)?),
        });
    }
}

/// Passes over a block to its closing brace.
fn skip(words: &mut Words<'_>, open: &Pos) -> Result<()> {
    let mut depth = 1;
    while depth > 0 {
        let token = words.take();
        match token.kind {
            Kind::End => return Err(open.wrong("this brace has no '}'")),
            _ if token.is_sign("{") => depth += 1,
            _ if token.is_sign("}") => depth -= 1,
            _ => {}
        }
    }
    Ok(())
}

fn set(words: &mut Words<'_>) -> Result<Set> {
    let key = words.value("a key")?.clone();
    words.sign("=", "behind a key")?;
    let mut values = Vec::new();
    loop {
        let word = words.value(&format!("a value of '{}'", key.text))?.clone();
        let mut value = Value { word, is_call: words.has_sign("("), arguments: Vec::new() };
        if value.is_call && !words.has_sign(")") {
            loop {
                value.arguments.push(words.value("an argument")?.clone());
                if !words.has_sign(",") {
                    break;
                }
            }
            words.sign(")", "behind the arguments")?;
        }
        values.push(value);
        if !words.has_sign(",") {
            break;
        }
    }
    words.sign(";", &format!("behind the value of '{}'", key.text))?;
    Ok(Set { key, values })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::words_of;

    fn why(text: &str) -> String {
        words_of(text)
            .and_then(|words| blocks(&words, &|key| key == "Log").map(drop))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn blocks_settings_and_calls() {
        let words = words_of(
            "A{b=c;d=e(f , 'g'),h;} ; Log { any { thing > } = ; } rules{ignore{size<1k} policy default{condition{true}}}",
        );
        let blocks = blocks(&words.unwrap(), &|key| key == "Log").unwrap();
        assert_eq!(blocks.len(), 3);
        let Body::Items(items) = &blocks[0].body else { panic!("items") };
        let Item::Set(set) = &items[1] else { panic!("a setting") };
        assert_eq!((set.values.len(), set.values[0].arguments[1].text.as_str()), (2, "g"));
        assert!(matches!(blocks[1].body, Body::Skipped));
        let Body::Items(rules) = &blocks[2].body else { panic!("items") };
        let Item::Block(policy) = &rules[1] else { panic!("a block") };
        assert_eq!(policy.title.as_ref().unwrap().text, "default");
    }

    #[test]
    fn what_is_missing_is_named_with_its_place() {
        assert!(why("A { b = 1\n}").contains("t.conf:2:1") && why("A { b = 1\n}").contains("';' is missing"));
        assert!(why("A {\n b = 1;").contains("t.conf:1:3"), "{}", why("A {\n b = 1;"));
        assert!(why("A = 1;").contains("'{' is missing"));
        assert!(why("Log { {").contains("no '}'"));
        assert!(why(&"a{".repeat(40)).contains("deeper"));
    }
}
