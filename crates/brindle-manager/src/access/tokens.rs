//! Tokens for programs: `tokens.json` in the manager's directory, which root alone may read. A token acts for the user who made it, with
//! the role that it was given, until it ends. Only hashes are kept: a token is shown once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brindle_host::identity::write_secret;
use brindle_stdx::Clock;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Role;
use super::secret::{self, Hashed};

/// Most tokens of one user.
pub const TOKENS_OF_USER_MAX: usize = 32;
/// Most tokens.
pub const TOKENS_MAX: usize = 1024;
/// Longest life of a token.
pub const DAYS_MAX: u32 = 366;
/// Longest name of a token, in characters.
const NAME_MAX_CHARS: usize = 64;
/// Largest file of tokens.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Name of the file.
const FILE: &str = "tokens.json";
/// Format of the file.
const VERSION: u32 = 1;
const DAY_S: i64 = 86_400;

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    /// Number.
    pub id: u64,
    /// Purpose of the token, in the words of its maker.
    pub name: String,
    /// The user for whom it acts.
    pub user: String,
    /// Role. A token has no more rights than its user.
    pub role: Role,
    /// When it was made, seconds since 1970.
    pub made_s: i64,
    /// When it ends, seconds since 1970.
    pub ends_s: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Token {
    #[serde(flatten)]
    view: TokenView,
    /// Hash of the secret, in hexadecimal digits.
    hash: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    next_id: u64,
    tokens: Vec<Token>,
}

/// All tokens.
pub struct Tokens {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    file: Mutex<File>,
}

impl Tokens {
    /// The tokens in a directory; none where there is no file yet.
    pub fn load(dir: &Path, clock: Arc<dyn Clock>) -> Result<Tokens> {
        let path = dir.join(FILE);
        let wrong = |why: String| {
            Fault::new(Code::BadConfigValue)
                .what("cannot read the tokens of the manager in")
                .subject(path.display().to_string())
                .why(why)
                .next("restore the file; or remove it, and make new tokens")
        };
        let file = match std::fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                File { version: VERSION, next_id: 1, tokens: Vec::new() }
            }
            Err(e) => return Err(wrong(e.to_string())),
            Ok(found) if found.len() > FILE_MAX_BYTES => {
                return Err(wrong(format!("it has {} bytes", found.len())));
            }
            Ok(_) => {
                let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
                serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?
            }
        };
        if file.version != VERSION {
            return Err(wrong(format!("it has format {}; this release knows {VERSION}", file.version)));
        }
        Ok(Tokens { path, clock, file: Mutex::new(file) })
    }

    /// Tokens that have not ended: those of a user, or all.
    pub fn list(&self, of: Option<&str>) -> Vec<TokenView> {
        let now_s = self.clock.wall().secs;
        let file = self.file.lock();
        let views = file.tokens.iter().map(|token| &token.view);
        views.filter(|v| v.ends_s > now_s && of.is_none_or(|user| v.user == user)).cloned().collect()
    }

    /// Makes a token of a user; it, and its secret.
    pub fn add(&self, user: &str, name: &str, role: Role, days: u32) -> Result<(TokenView, String)> {
        check(name, days)?;
        let now_s = self.clock.wall().secs;
        let mut file = self.file.lock();
        let mut tokens: Vec<Token> = file.tokens.iter().filter(|t| t.view.ends_s > now_s).cloned().collect();
        let of_user = tokens.iter().filter(|token| token.view.user == user).count();
        if of_user >= TOKENS_OF_USER_MAX || tokens.len() >= TOKENS_MAX {
            return Err(Fault::new(Code::ManagerBusy)
                .what("cannot make a token for")
                .subject(user.to_owned())
                .why(format!("a user has {TOKENS_OF_USER_MAX} at most, all users {TOKENS_MAX}"))
                .data("nothing was changed")
                .next("revoke one that is not used"));
        }
        let shown = secret::new()?;
        let view = TokenView {
            id: file.next_id,
            name: name.to_owned(),
            user: user.to_owned(),
            role,
            made_s: now_s,
            ends_s: now_s + i64::from(days) * DAY_S,
        };
        tokens.push(Token { view: view.clone(), hash: secret::hashed(&shown).hex() });
        self.save(&mut file, tokens, view.id + 1)?;
        Ok((view, shown))
    }

    /// Revokes a token: of a user, or anybody's.
    pub fn revoke(&self, of: Option<&str>, id: u64) -> Result<TokenView> {
        let mut file = self.file.lock();
        let is_meant = |token: &&Token| token.view.id == id && of.is_none_or(|user| token.view.user == user);
        let Some(view) = file.tokens.iter().find(is_meant).map(|token| token.view.clone()) else {
            return Err(Fault::new(Code::UnknownResource)
                .what("cannot revoke the token")
                .subject(id.to_string())
                .why("there is none of this number that you may revoke")
                .data("nothing was changed"));
        };
        let tokens = file.tokens.iter().filter(|token| token.view.id != id).cloned().collect();
        let next_id = file.next_id;
        self.save(&mut file, tokens, next_id)?;
        Ok(view)
    }

    /// Revokes all tokens of a user.
    pub fn revoke_of(&self, user: &str) -> Result<()> {
        let mut file = self.file.lock();
        let tokens = file.tokens.iter().filter(|token| token.view.user != user).cloned().collect();
        let next_id = file.next_id;
        self.save(&mut file, tokens, next_id)
    }

    /// The token that somebody shows, if it has not ended.
    pub fn shown(&self, secret: &str) -> Option<TokenView> {
        let (hash, now_s): (Hashed, i64) = (secret::hashed(secret), self.clock.wall().secs);
        let hash = hash.hex();
        let file = self.file.lock();
        let found = file.tokens.iter().find(|token| token.hash == hash && token.view.ends_s > now_s);
        found.map(|token| token.view.clone())
    }

    fn save(&self, file: &mut File, tokens: Vec<Token>, next_id: u64) -> Result<()> {
        let changed = File { version: VERSION, next_id, tokens };
        let text = serde_json::to_string_pretty(&changed).expect("plain fields always serialise");
        write_secret(&self.path, &text).map_err(|fault| fault.what("cannot write the tokens to"))?;
        *file = changed;
        Ok(())
    }
}

fn check(name: &str, days: u32) -> Result<()> {
    let has_length = !name.trim().is_empty() && name.chars().count() <= NAME_MAX_CHARS;
    let why = if !has_length || name.chars().any(char::is_control) {
        format!("its name says what it is for, in 1 to {NAME_MAX_CHARS} characters of one line")
    } else if !(1..=DAYS_MAX).contains(&days) {
        format!("it lives for 1 to {DAYS_MAX} days, not {days}")
    } else {
        return Ok(());
    };
    Err(Fault::new(Code::BadArgument).what("cannot make the token").why(why).data("nothing was changed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Hand;

    fn tokens() -> (tempfile::TempDir, Arc<Hand>, Tokens) {
        let (dir, hand) = (tempfile::tempdir().unwrap(), Hand::new());
        let tokens = Tokens::load(dir.path(), hand.clone()).unwrap();
        (dir, hand, tokens)
    }

    #[test]
    fn a_token_works_until_it_ends_or_is_revoked_and_after_a_restart() {
        use std::os::unix::fs::PermissionsExt as _;
        let (dir, hand, tokens) = tokens();
        let (view, secret) = tokens.add("ada", "nightly report", Role::Viewer, 2).unwrap();
        assert_eq!(tokens.shown(&secret).as_ref(), Some(&view));
        assert!(tokens.shown("").is_none() && tokens.shown(&secret[1..]).is_none());
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!text.contains(&secret), "{text}");
        assert_eq!(std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        let again = Tokens::load(dir.path(), hand.clone()).unwrap();
        assert_eq!(again.shown(&secret), Some(view.clone()));
        assert!(again.revoke(Some("bob"), view.id).is_err(), "that of another user");
        again.revoke(Some("ada"), view.id).unwrap();
        assert!(again.shown(&secret).is_none() && again.revoke(None, view.id).is_err());
        let (other, secret) = again.add("ada", "x", Role::Viewer, 2).unwrap();
        assert_ne!(other.id, view.id, "no number is given twice");
        hand.forward_ms(2 * 86_400_000);
        assert!(again.shown(&secret).is_none() && again.list(None).is_empty(), "it has ended");
    }

    #[test]
    fn tokens_are_bounded_and_end_with_their_user() {
        let (_dir, _, tokens) = tokens();
        for (name, days) in [("", 1), (" ", 1), ("a\nb", 1), ("x", 0), ("x", DAYS_MAX + 1)] {
            assert_eq!(tokens.add("ada", name, Role::Viewer, days).unwrap_err().code, Code::BadArgument);
        }
        for n in 0..TOKENS_OF_USER_MAX {
            tokens.add("ada", &n.to_string(), Role::Viewer, 1).unwrap();
        }
        assert_eq!(tokens.add("ada", "x", Role::Viewer, 1).unwrap_err().code, Code::ManagerBusy);
        tokens.add("bob", "x", Role::Viewer, 1).unwrap();
        tokens.revoke_of("ada").unwrap();
        assert!(tokens.list(Some("ada")).is_empty());
        assert_eq!(tokens.list(None).len(), 1);
    }
}
