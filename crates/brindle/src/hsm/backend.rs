//! Options that describe an archive: `--backend`, and the options that belong to it.

use std::path::PathBuf;

use brindle_hsm::archive::s3::{self, Bucket, BucketLocation, Credentials};
use brindle_hsm::{Archive, Directory, Layout};
use brindle_stdx::Seams;
use brindle_types::{Code, Fault, Result};

/// File of the certificate authorities, on Debian and most other systems.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// An archive.
#[derive(clap::Args, Clone, Debug)]
pub struct At {
    /// Where the archive is: posix:DIR, or s3://BUCKET[/PREFIX]
    #[arg(long, value_name = "PLACE", value_parser = crate::format::parse::<Backend>)]
    pub backend: Backend,
    /// Layout of the archive, as lhsmtool_posix has it: v1 or v2
    #[arg(long, value_name = "LAYOUT", default_value = "v1", value_parser = layout)]
    pub archive_format: Layout,
    /// Make no links with the paths of files
    #[arg(long)]
    pub no_shadow: bool,
    /// Options of s3://
    #[command(flatten)]
    pub s3: S3Args,
}

/// How an S3 server is reached.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Args {
    /// Address of the S3 server, http://HOST[:PORT] or https://...; without it Amazon's
    #[arg(long = "s3-endpoint", value_name = "URL", value_parser = endpoint)]
    endpoint: Option<String>,
    /// Region
    #[arg(long = "s3-region", value_name = "REGION", default_value = s3::REGION_DEFAULT)]
    region: String,
    /// File with the keys, as ~/.aws/credentials has them; nobody but its owner may read it (mode 0600)
    #[arg(long = "s3-credentials", value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Certificate authorities that the server's certificate is checked by, PEM
    #[arg(long = "s3-ca", value_name = "FILE", default_value = AUTHORITIES)]
    authorities: PathBuf,
}

/// The address of a server, without a path, a user or a secret.
pub fn endpoint(text: &str) -> std::result::Result<String, String> {
    let text = text.trim_end_matches('/');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or("it begins with neither https:// nor http://")?;
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    if rest.is_empty() || !rest.chars().all(is_host) {
        return Err("it is not http://HOST[:PORT] or https://HOST[:PORT]".to_owned());
    }
    Ok(text.to_owned())
}

/// `posix:DIR` or `s3://BUCKET[/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A directory.
    Posix(PathBuf),
    /// A bucket and a prefix.
    S3(String, String),
}

impl std::str::FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Backend, String> {
        if let Some(place) = text.strip_prefix("s3://") {
            let (bucket, prefix) = s3::bucket_and_prefix(place)?;
            return Ok(Backend::S3(bucket, prefix));
        }
        match text.split_once(':') {
            Some(("posix", dir)) if !dir.is_empty() => Ok(Backend::Posix(PathBuf::from(dir))),
            Some((kind, _)) if kind != "posix" && kind != "s3" => Err(format!(
                "there is no archive of kind '{kind}'; there are posix:DIR and s3://BUCKET[/PREFIX]"
            )),
            _ => Err(format!("'{text}' is not posix:DIR or s3://BUCKET[/PREFIX]")),
        }
    }
}

impl Backend {
    /// Text for a command line.
    fn argument(&self) -> Result<String> {
        Ok(match self {
            Backend::Posix(dir) => format!("posix:{}", crate::cli::text(dir)?),
            Backend::S3(bucket, prefix) if prefix.is_empty() => format!("s3://{bucket}"),
            Backend::S3(bucket, prefix) => format!("s3://{bucket}/{prefix}"),
        })
    }
}

pub fn layout(text: &str) -> std::result::Result<Layout, String> {
    text.parse()
}

impl At {
    /// Opens the archive that is asked for.
    pub async fn open(&self, seams: &Seams) -> Result<Archive> {
        let (bucket, prefix) = match &self.backend {
            Backend::Posix(dir) => {
                return Ok(Archive::Posix(Directory::open(dir, self.archive_format, !self.no_shadow)?));
            }
            Backend::S3(bucket, prefix) => (bucket.clone(), prefix.clone()),
        };
        let S3Args { endpoint, region, credentials, authorities } = self.s3.clone();
        let path = credentials.ok_or_else(|| {
            Fault::new(Code::BadArgument)
                .what("cannot use")
                .subject(format!("s3://{bucket}"))
                .why("no --s3-credentials is given, the file with its keys")
        })?;
        let credentials = Credentials::read(&path)?;
        let place = BucketLocation { bucket, prefix, endpoint, region, authorities };
        Ok(Archive::S3(Bucket::open(place, &credentials, seams).await?))
    }

    /// Arguments for a command line.
    pub fn arguments(&self) -> Result<Vec<String>> {
        let layout = match self.archive_format {
            Layout::V1 => "v1",
            Layout::V2 => "v2",
        };
        let mut arguments =
            vec![format!("--backend={}", self.backend.argument()?), format!("--archive-format={layout}")];
        arguments.extend(self.s3_arguments()?);
        arguments.extend(self.no_shadow.then(|| "--no-shadow".to_owned()));
        Ok(arguments)
    }

    fn s3_arguments(&self) -> Result<Vec<String>> {
        if matches!(self.backend, Backend::Posix(_)) {
            return Ok(Vec::new());
        }
        let S3Args { endpoint, region, credentials, authorities } = &self.s3;
        let mut arguments =
            vec![format!("--s3-region={region}"), format!("--s3-ca={}", crate::cli::text(authorities)?)];
        arguments.extend(endpoint.iter().map(|endpoint| format!("--s3-endpoint={endpoint}")));
        if let Some(path) = credentials {
            arguments.push(format!("--s3-credentials={}", crate::cli::text(path)?));
        }
        Ok(arguments)
    }
}
