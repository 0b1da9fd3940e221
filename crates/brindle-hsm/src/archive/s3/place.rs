//! Location of a bucket, and the credentials for it.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use brindle_types::{Code, Fault, Result};
use object_store::aws::AmazonS3Builder;

/// The region that servers have which know of none.
pub const REGION_DEFAULT: &str = "us-east-1";
/// The largest file of credentials.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Location of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLocation {
    /// Name of the bucket.
    pub bucket: String,
    /// Prefix of every key; without slashes at its ends; may be empty.
    pub prefix: String,
    /// `http://HOST:PORT` or `https://...`; `None` for Amazon's.
    pub endpoint: Option<String>,
    /// Region.
    pub region: String,
    /// Certificate authorities, PEM, for `https`.
    pub authorities: PathBuf,
}

impl fmt::Display for BucketLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        match &self.endpoint {
            Some(endpoint) => write!(f, " at {endpoint}"),
            None => write!(f, " in {}", self.region),
        }
    }
}

impl BucketLocation {
    /// Whether connections are protected.
    pub fn is_tls(&self) -> bool {
        self.endpoint.as_ref().is_none_or(|endpoint| endpoint.starts_with("https://"))
    }
}

/// Bucket and prefix of `BUCKET[/PREFIX]`.
pub fn bucket_and_prefix(text: &str) -> std::result::Result<(String, String), String> {
    let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_name) {
        return Err(format!("'{bucket}' is no name of a bucket: 3 to 63 of a-z 0-9 - ."));
    }
    let prefix = prefix.trim_matches('/');
    let is_part = |part: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '=');
        !part.is_empty() && part != "." && part != ".." && part.chars().all(is_plain)
    };
    if !prefix.is_empty() && !prefix.split('/').all(is_part) {
        return Err(format!("'{prefix}' is no prefix: letters, digits, - . _ = between slashes"));
    }
    Ok((bucket.to_owned(), prefix.to_owned()))
}

/// Credentials of a bucket's user. Never shown, logged or passed as an argument.
pub struct Credentials {
    key_id: String,
    secret: String,
    token: Option<String>,
}

fn refused(path: &Path, why: impl Into<String>) -> Fault {
    Fault::new(Code::S3Credentials).subject(path.display().to_string()).why(why.into())
}

impl Credentials {
    /// Reads them from a file in the form of `~/.aws/credentials`, that is its owner's alone.
    pub fn read(path: &Path) -> Result<Credentials> {
        let cannot = |e: std::io::Error| refused(path, format!("it cannot be read: {e}"));
        // A pipe must not make us wait.
        let opened = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = opened.map_err(cannot)?;
        let meta = file.metadata().map_err(cannot)?;
        if !meta.is_file() {
            return Err(refused(path, "it is not a regular file"));
        }
        let me = rustix::process::geteuid().as_raw();
        if meta.uid() != me && meta.uid() != 0 {
            return Err(refused(path, format!("it belongs to user {}, who could change it", meta.uid())));
        }
        if meta.mode() & 0o077 != 0 {
            let why = format!("others may read or write it: its mode is {:04o}", meta.mode() & 0o7777);
            return Err(refused(path, why).next(format!("chmod 600 {}", path.display())));
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(cannot)?;
        Credentials::parse(&text).map_err(|why| refused(path, why))
    }

    fn parse(text: &str) -> std::result::Result<Credentials, String> {
        let (mut key_id, mut secret, mut token) = (None, None, None);
        // Keys in front of any section count, too.
        let mut is_ours = true;
        for line in
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        {
            if let Some(section) = line.strip_prefix('[') {
                is_ours = section.trim_end_matches(']').trim() == "default";
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_ours) else { continue };
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match key.trim().trim_start_matches("aws_") {
                "access_key_id" => key_id = value,
                "secret_access_key" => secret = value,
                "session_token" => token = value,
                _ => {}
            }
        }
        let missing =
            |what: &str| format!("it has no line '{what} = ...' in front of any section or in [default]");
        Ok(Credentials {
            key_id: key_id.ok_or_else(|| missing("aws_access_key_id"))?,
            secret: secret.ok_or_else(|| missing("aws_secret_access_key"))?,
            token,
        })
    }

    /// Gives them to a store.
    pub(super) fn enter(&self, builder: AmazonS3Builder) -> AmazonS3Builder {
        let builder = builder.with_access_key_id(&self.key_id).with_secret_access_key(&self.secret);
        match &self.token {
            Some(token) => builder.with_token(token),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn buckets_and_prefixes() {
        let both = |bucket: &str, prefix: &str| Ok((bucket.to_owned(), prefix.to_owned()));
        assert_eq!(bucket_and_prefix("arch"), both("arch", ""));
        assert_eq!(bucket_and_prefix("arch/a/b/"), both("arch", "a/b"));
        for wrong in ["", "ab", "Arch", "arch/a//b", "arch/../x", "arch/a b"] {
            assert!(bucket_and_prefix(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_are_read_in_the_form_of_aws_from_a_file_that_nobody_else_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        let text = "[other]\naws_access_key_id = no\n[default]\n# us\naws_access_key_id = me\naws_secret_access_key=a=b\n";
        fs::write(&path, text).unwrap();
        for mode in [0o644, 0o640, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let fault = Credentials::read(&path).err().unwrap();
            assert_eq!(fault.code, Code::S3Credentials);
            assert!(!fault.to_string().contains("a=b"), "{fault}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let read = Credentials::read(&path).unwrap_or_else(|fault| panic!("{fault}"));
        assert_eq!((read.key_id.as_str(), read.secret.as_str(), read.token), ("me", "a=b", None));
        fs::write(&path, "aws_access_key_id = me\n").unwrap();
        let fault = Credentials::read(&path).err().unwrap();
        assert!(fault.to_string().contains("aws_secret_access_key"), "{fault}");
        assert_eq!(Credentials::read(dir.path()).err().unwrap().code, Code::S3Credentials);
    }
}
