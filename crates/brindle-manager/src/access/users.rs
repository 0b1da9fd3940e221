//! Local users: `users.json` in the manager's directory, which root alone may read. Passwords are kept as argon2id hashes.

use std::path::{Path, PathBuf};

use argon2::password_hash::SaltString;
use argon2::{Argon2, PasswordHash, PasswordHasher, PasswordVerifier};
use brindle_host::identity::write_secret;
use brindle_types::{Code, Fault, Result};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Role;
use super::sessions::LOCAL_USER;

/// Most users.
const USERS_MAX: usize = 1000;
/// Longest name of a user.
const NAME_MAX: usize = 32;
/// Shortest password, in characters.
pub const PASSWORD_MIN: usize = 10;
/// Longest password, in bytes: hashing takes time with each of them.
const PASSWORD_MAX_BYTES: usize = 256;
/// Largest file of users.
const FILE_MAX_BYTES: u64 = 1 << 20;
/// Name of the file.
const FILE: &str = "users.json";
/// Format of the file.
const VERSION: u32 = 1;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserView {
    /// Name at log-in.
    pub name: String,
    /// Role.
    pub role: Role,
    /// Whether the host knows the password, and is asked by PAM.
    #[serde(default)]
    pub by_pam: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct User {
    name: String,
    role: Role,
    /// argon2id, in the PHC form; empty if the host knows the password.
    hash: String,
    #[serde(default)]
    by_pam: bool,
}

/// Where the password of a user is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Password<'a> {
    /// Stored here: this password.
    Own(&'a str),
    /// At the host, which is asked by PAM.
    ByPam,
}

#[derive(Debug, Serialize, Deserialize)]
struct File {
    version: u32,
    users: Vec<User>,
}

/// All users.
pub struct Users {
    path: PathBuf,
    users: Mutex<Vec<User>>,
    /// Hash of no password that anybody has: a log-in under an unknown name takes as long as any other.
    nobody: String,
}

impl Users {
    /// The users in a directory; none where there is no file yet.
    pub fn load(dir: &Path) -> Result<Users> {
        let path = dir.join(FILE);
        let wrong = |why: String| {
            Fault::new(Code::BadConfigValue)
                .what("cannot read the users of the manager in")
                .subject(path.display().to_string())
                .why(why)
                .next(
                    "restore the file; or remove it, and the next start prints an address for a first log-in",
                )
        };
        let users = match std::fs::metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(wrong(e.to_string())),
            Ok(found) if found.len() > FILE_MAX_BYTES => {
                return Err(wrong(format!("it has {} bytes", found.len())));
            }
            Ok(_) => {
                let text = std::fs::read_to_string(&path).map_err(|e| wrong(e.to_string()))?;
                let file: File = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
                if file.version != VERSION {
                    return Err(wrong(format!(
                        "it has format {}; this release knows {VERSION}",
                        file.version
                    )));
                }
                file.users
            }
        };
        let nobody = hash(&super::secret::new()?)?;
        Ok(Users { path, users: Mutex::new(users), nobody })
    }

    /// Whether there is nobody yet.
    pub fn is_empty(&self) -> bool {
        self.users.lock().is_empty()
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<UserView> {
        let users = self.users.lock();
        let view = |user: &User| UserView { name: user.name.clone(), role: user.role, by_pam: user.by_pam };
        let mut list: Vec<UserView> = users.iter().map(view).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// The present role of a user; `None` for somebody who was removed.
    pub fn role(&self, name: &str) -> Option<Role> {
        self.users.lock().iter().find(|user| user.name == name).map(|user| user.role)
    }

    /// Whether the host knows the password of a user.
    pub fn is_by_pam(&self, name: &str) -> bool {
        self.users.lock().iter().any(|user| user.name == name && user.by_pam)
    }

    /// Whether a user has this password here. Takes long, by intention: not to be called on a thread that others wait for.
    pub fn has_password(&self, name: &str, password: &str) -> bool {
        let known = self.users.lock().iter().find(|user| user.name == name).map(|user| user.hash.clone());
        let is_known = known.is_some();
        let hash = known.unwrap_or_else(|| self.nobody.clone());
        let fits = PasswordHash::new(&hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        fits && is_known && password.len() <= PASSWORD_MAX_BYTES
    }

    /// Adds a user. Hashes a password: see [`Users::has_password`].
    pub fn add(&self, name: &str, role: Role, password: Password<'_>) -> Result<()> {
        self.insert(name, role, password, false)
    }

    /// Adds the first user, an administrator, if there is nobody yet.
    pub fn add_first(&self, name: &str, password: &str) -> Result<()> {
        self.insert(name, Role::Administrator, Password::Own(password), true)
    }

    fn insert(&self, name: &str, role: Role, password: Password<'_>, is_first: bool) -> Result<()> {
        check_name(name)?;
        let (hash, by_pam) = match password {
            Password::Own(password) => {
                check_password(password)?;
                (hash(password)?, false)
            }
            Password::ByPam => (String::new(), true),
        };
        let user = User { name: name.to_owned(), role, hash, by_pam };
        let mut users = self.users.lock();
        if is_first && !users.is_empty() {
            return Err(
                Fault::new(Code::LogInRefused).why("somebody has logged in for the first time already")
            );
        }
        if users.iter().any(|other| other.name == name) {
            return Err(Fault::new(Code::UserExists).what("cannot add the user").subject(name.to_owned()));
        }
        if users.len() >= USERS_MAX {
            return Err(Fault::new(Code::ManagerBusy)
                .what("cannot add the user")
                .subject(name.to_owned())
                .why(format!("there are {USERS_MAX} users, and no more are taken"))
                .next("remove one"));
        }
        let mut changed = users.clone();
        changed.push(user);
        self.save(&changed)?;
        *users = changed;
        Ok(())
    }

    /// Removes a user; the last administrator stays.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut users = self.users.lock();
        let Some(role) = users.iter().find(|user| user.name == name).map(|user| user.role) else {
            return Err(Fault::new(Code::UnknownUser).subject(name.to_owned()));
        };
        let administrators = users.iter().filter(|user| user.role == Role::Administrator).count();
        if role == Role::Administrator && administrators == 1 {
            return Err(Fault::new(Code::RoleForbids)
                .what("cannot remove")
                .subject(name.to_owned())
                .why("this is the only administrator, and without one nobody could manage users")
                .data("nothing was changed")
                .next("add another administrator first"));
        }
        let changed: Vec<User> = users.iter().filter(|user| user.name != name).cloned().collect();
        self.save(&changed)?;
        *users = changed;
        Ok(())
    }

    fn save(&self, users: &[User]) -> Result<()> {
        let file = File { version: VERSION, users: users.to_vec() };
        let text = serde_json::to_string_pretty(&file).expect("plain fields always serialise");
        write_secret(&self.path, &text).map_err(|fault| fault.what("cannot write the users to"))
    }
}

fn hash(password: &str) -> Result<String> {
    let bug = |why: String| Fault::new(Code::Bug).what("cannot hash a password").why(why);
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut salt).map_err(|_| bug("the kernel gives no random numbers".to_owned()))?;
    let salt = SaltString::encode_b64(&salt).map_err(|e| bug(e.to_string()))?;
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string()).map_err(|e| bug(e.to_string()))
}

fn check_name(name: &str) -> Result<()> {
    let is_good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if name == LOCAL_USER {
        return Err(Fault::new(Code::BadArgument)
            .what("cannot use the name")
            .subject(name.to_owned())
            .why("it stands for whoever gives commands on the manager's host")
            .data("nothing was changed")
            .next("choose another name"));
    }
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase());
    if starts_well && name.len() <= NAME_MAX && name.chars().all(is_good) {
        return Ok(());
    }
    Err(Fault::new(Code::BadArgument)
        .what("cannot use the name")
        .subject(format!("{name:?}"))
        .why(format!(
            "a name begins with a small letter, has small letters, digits, '.', '_' and '-', and {NAME_MAX} characters at most"
        ))
        .data("nothing was changed")
        .next("choose another name"))
}

fn check_password(password: &str) -> Result<()> {
    let why = if password.chars().count() < PASSWORD_MIN {
        format!("it has fewer than {PASSWORD_MIN} characters")
    } else if password.len() > PASSWORD_MAX_BYTES {
        format!("it has more than {PASSWORD_MAX_BYTES} bytes")
    } else {
        return Ok(());
    };
    Err(Fault::new(Code::BadArgument)
        .what("cannot use the password")
        .why(why)
        .data("nothing was changed")
        .next("choose another password"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_kept_in_a_secret_file_without_their_passwords() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let users = Users::load(dir.path()).unwrap();
        assert!(users.is_empty());
        users.add_first("ada", "a good password").unwrap();
        assert_eq!(users.add_first("eve", "a good password").unwrap_err().code, Code::LogInRefused);
        users.add("bob", Role::Operator, Password::Own("another password")).unwrap();
        assert_eq!(
            users.add("bob", Role::Viewer, Password::Own("another password")).unwrap_err().code,
            Code::UserExists
        );
        let path = dir.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("password") && text.contains("$argon2id$"), "{text}");
        let again = Users::load(dir.path()).unwrap();
        assert_eq!(again.role("bob"), Some(Role::Operator));
        assert!(again.has_password("ada", "a good password"));
        assert!(
            !again.has_password("ada", "another password") && !again.has_password("eve", "a good password")
        );
    }

    #[test]
    fn a_user_of_the_host_has_no_password_here() {
        let dir = tempfile::tempdir().unwrap();
        let users = Users::load(dir.path()).unwrap();
        users.add("hans", Role::Viewer, Password::ByPam).unwrap();
        assert!(users.is_by_pam("hans") && !users.is_by_pam("ada"));
        assert!(!users.has_password("hans", "") && !users.has_password("hans", "a good password"));
        assert!(Users::load(dir.path()).unwrap().is_by_pam("hans"));
    }

    #[test]
    fn the_last_administrator_stays() {
        let dir = tempfile::tempdir().unwrap();
        let users = Users::load(dir.path()).unwrap();
        users.add_first("ada", "a good password").unwrap();
        users.add("bob", Role::Operator, Password::Own("a good password")).unwrap();
        assert_eq!(users.remove("ada").unwrap_err().code, Code::RoleForbids);
        users.add("eve", Role::Administrator, Password::Own("a good password")).unwrap();
        users.remove("ada").unwrap();
        assert_eq!(users.remove("ada").unwrap_err().code, Code::UnknownUser);
    }

    #[test]
    fn bad_names_passwords_and_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let users = Users::load(dir.path()).unwrap();
        for name in ["", "Ada", "root", "a b", "../x", "9", &"a".repeat(33)] {
            assert_eq!(
                users.add(name, Role::Viewer, Password::Own("a good password")).unwrap_err().code,
                Code::BadArgument
            );
        }
        assert!(users.add("ada", Role::Viewer, Password::Own("short")).is_err());
        assert!(users.add("ada", Role::Viewer, Password::Own(&"x".repeat(257))).is_err());
        assert!(users.is_empty());
        std::fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(Users::load(dir.path()).err().unwrap().code, Code::BadConfigValue);
    }
}
