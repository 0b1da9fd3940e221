//! Address of etcd: `etcd://a:2379,b:2379,c:2379`.

use std::fmt;
use std::str::FromStr;

use brindle_types::{Code, Fault, Result};

/// Port that etcd's clients use unless the address names another.
pub const PORT_DEFAULT: u16 = 2379;
/// Most members that an address may name.
pub const ENDPOINTS_MAX: usize = 16;

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address; an IPv6 address is written in brackets and kept without them.
    pub host: String,
    /// Port of its clients.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Certificates and key for TLS, each the PEM text of a file.
#[derive(Clone)]
pub struct TlsFiles {
    /// Certificates of the authority that made the members' certificates.
    pub authority: Vec<u8>,
    /// Certificate that is shown to the members.
    pub certificate: Vec<u8>,
    /// Private key of the client.
    pub key: Vec<u8>,
}

/// The members of an etcd cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The members.
    pub endpoints: Vec<Endpoint>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.endpoints.iter().map(Endpoint::to_string).collect();
        write!(f, "etcd://{}", names.join(","))
    }
}

impl FromStr for Address {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Address> {
        let bad = |why: String| {
            Fault::new(Code::BadArgument)
                .subject(text.to_owned())
                .why(why)
                .next("write it as etcd://HOST[:PORT],HOST[:PORT],HOST[:PORT]")
        };
        let members =
            text.strip_prefix("etcd://").ok_or_else(|| bad("it does not begin with etcd://".into()))?;
        let endpoints: std::result::Result<Vec<Endpoint>, String> =
            members.split(',').map(endpoint).collect();
        let endpoints = endpoints.map_err(&bad)?;
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(bad(format!("it names {} members, {ENDPOINTS_MAX} are possible", endpoints.len())));
        }
        Ok(Address { endpoints })
    }
}

fn endpoint(text: &str) -> std::result::Result<Endpoint, String> {
    let number = |text: &str| match text.parse::<u16>() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port")),
    };
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, PORT_DEFAULT),
        Some((host, rest)) => {
            let port = rest.strip_prefix(':').ok_or_else(|| format!("'{text}' is no address of a member"))?;
            (host, number(port)?)
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) => (host, number(port)?),
            None => (text, PORT_DEFAULT),
        },
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || !host.chars().all(allowed) {
        return Err(format!("'{text}' is no address of a member"));
    }
    Ok(Endpoint { host: host.to_owned(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let address: Address = "etcd://a,10.0.0.1:4001,[fe80::1]:2379".parse().unwrap();
        assert_eq!(address.to_string(), "etcd://a:2379,10.0.0.1:4001,[fe80::1]:2379");
        assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        for bad in
            ["a:2379", "etcd://", "etcd://a,", "etcd://a:0", "etcd://a:99999", "etcd://a/b", "etcd://[::1"]
        {
            assert_eq!(bad.parse::<Address>().unwrap_err().code, Code::BadArgument, "{bad}");
        }
        let many = format!("etcd://{}", vec!["a"; ENDPOINTS_MAX + 1].join(","));
        assert_eq!(many.parse::<Address>().unwrap_err().code, Code::BadArgument);
    }
}
