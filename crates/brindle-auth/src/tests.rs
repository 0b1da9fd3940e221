//! Handshakes in memory between hosts, strangers and impostors; texts that do not decode.

use brindle_stdx::fuzz;
use brindle_types::{Code, Result};

use super::*;

const NOW_S: i64 = 1_800_000_000;
const DAY_S: i64 = 24 * 3600;
const CLUSTER: ClusterId = ClusterId(0xb1);

fn now_s() -> i64 {
    // `rustls` looks at the system's clock.
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    since.as_secs() as i64
}

fn identity(authority: &Authority, host: &str, roles: &[HostRole]) -> Identity {
    let name = Name { cluster: authority.cluster(), host: host.into(), roles: Roles::of(roles) };
    let key = HostKey::generate().expect("random numbers");
    let certificate = authority.issue(&name, &key.public(), now_s()).expect("issued");
    Identity::new(key, certificate, authority.certificate().to_vec()).expect("belongs together")
}

fn credentials(authority: &Authority, host: &str, roles: &[HostRole]) -> Credentials {
    Credentials::new(identity(authority, host, roles)).expect("prepared")
}

/// Runs a handshake in memory: what the server has proven of the client, and why either side ended it.
fn shake(
    mut client: rustls::ClientConnection,
    mut server: rustls::ServerConnection,
) -> std::result::Result<(Option<Proof>, Mode), (&'static str, Code)> {
    for _ in 0..8 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).expect("memory");
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).expect("memory");
            if let Err(e) = server.process_new_packets() {
                return Err(("server", refusal(&e).code));
            }
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).expect("memory");
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).expect("memory");
            if let Err(e) = client.process_new_packets() {
                return Err(("client", refusal(&e).code));
            }
        }
    }
    let mode = client.alpn_protocol().and_then(Mode::of_protocol).expect("agreed");
    Ok((proof_of(&server).expect("a name"), mode))
}

#[test]
fn both_sides_prove_who_they_are_and_agree_on_the_strongest_that_either_asks_for() {
    let authority = Authority::new(CLUSTER, now_s()).expect("made");
    let server = credentials(&authority, "oss1", &[HostRole::Server]);
    let client = credentials(&authority, "c1", &[HostRole::Client]);
    for wants in Mode::PROVEN {
        for allows in Mode::PROVEN {
            let outcome =
                shake(client.connecting(wants).expect("c"), server.accepting(allows, false).expect("s"));
            let (proof, mode) = outcome.expect("they agree");
            assert_eq!(mode, wants.max(allows));
            let proof = proof.expect("a certificate");
            assert_eq!((proof.host.as_str(), proof.roles), ("c1", Roles::of(&[HostRole::Client])));
            assert_eq!((proof.mode, proof.key), (mode, client.identity().key_id()));
        }
    }
}

#[test]
fn strangers_foreigners_clients_as_servers_and_the_expired_are_refused() {
    let (own, other) =
        (Authority::new(CLUSTER, now_s()).expect("a"), Authority::new(CLUSTER, now_s()).expect("b"));
    let server = credentials(&own, "oss1", &[HostRole::Server]);
    let accepting = || server.accepting(Mode::Auth, false).expect("accepts");
    let foreign = credentials(&other, "oss1", &[HostRole::Server]);
    // (The signature distinguishes two authorities of the same name.)
    assert_eq!(
        shake(foreign.connecting(Mode::Auth).expect("c"), accepting()).unwrap_err(),
        ("client", Code::ForeignCertificate)
    );
    let client = credentials(&own, "c1", &[HostRole::Client]);
    let posing = client.accepting(Mode::Auth, false).expect("accepts");
    let outcome = shake(client.connecting(Mode::Auth).expect("c"), posing);
    assert_eq!(outcome.unwrap_err(), ("client", Code::ForeignCertificate), "a client poses as a server");
    let stranger = || Pinned::connecting(CLUSTER, own.fingerprint()).expect("connects");
    assert_eq!(shake(stranger(), accepting()).unwrap_err(), ("server", Code::NotEnrolled));
    let joins = shake(stranger(), server.accepting(Mode::Auth, true).expect("s"));
    assert_eq!(joins, Ok((None, Mode::Privacy)), "a stranger may join, inside TLS");
    let fooled = Pinned::connecting(CLUSTER, other.fingerprint()).expect("connects");
    assert_eq!(
        shake(fooled, server.accepting(Mode::Auth, true).expect("s")).unwrap_err(),
        ("client", Code::ForeignCertificate),
        "the fingerprint in the token is another one"
    );
    let name = Name { cluster: CLUSTER, host: "old".into(), roles: Roles::of(&[HostRole::Client]) };
    let key = HostKey::generate().expect("key");
    let ended = own.issue_until(&name, &key.public(), now_s() - 200_000, now_s() - 10).expect("issued");
    let old = Identity::new(key, ended, own.certificate().to_vec()).expect("belongs together");
    let old = Credentials::new(old).expect("prepared");
    assert_eq!(
        shake(old.connecting(Mode::Auth).expect("c"), accepting()).unwrap_err(),
        ("server", Code::CertificateExpired)
    );
}

#[test]
fn files_come_back_as_they_were_written() {
    let authority = Authority::new(CLUSTER, NOW_S).expect("made");
    let again = Authority::from_pem(&authority.to_pem()).expect("read");
    assert_eq!((again.cluster(), again.fingerprint()), (CLUSTER, authority.fingerprint()));
    let host = identity(&again, "oss1.site", &[HostRole::Server, HostRole::Admin]);
    let text = host.to_pem();
    assert!(text.starts_with(
        "Identity of the host oss1.site in the Brindle cluster 00000000000000b1, roles: server,admin."
    ));
    let read = Identity::from_pem(&text).expect("read");
    assert_eq!((read.name(), read.key_id()), (host.name(), host.key_id()));
    let other = identity(&again, "oss2", &[HostRole::Server]);
    let mixed = Identity::new(
        HostKey::from_pem(&other.to_pem()).expect("key"),
        host.certificate().to_vec(),
        authority.certificate().to_vec(),
    );
    assert_eq!(mixed.err().map(|f| f.code), Some(Code::BadIdentity), "a key of another host");
}

#[test]
fn a_certificate_wants_renewal_when_half_of_its_time_has_passed() {
    let now_s = now_s();
    let authority = Authority::new(CLUSTER, now_s).expect("made");
    let host = identity(&authority, "oss1", &[HostRole::Client]);
    let renewed = authority.issue(host.name(), &host.key().public(), now_s + 50 * DAY_S).expect("issued");
    let renewed = Credentials::new(host.renewed(renewed).expect("of the same key")).expect("used");
    let other = identity(&authority, "oss2", &[HostRole::Client]);
    assert!(host.renewed(other.certificate().to_vec()).is_err(), "a certificate of another key");
    let host = Credentials::new(host).expect("used");
    assert!(!host.wants_renewal(now_s) && !host.wants_renewal(now_s + 44 * DAY_S));
    assert!(host.wants_renewal(now_s + 46 * DAY_S) && host.wants_renewal(now_s + 100 * DAY_S));
    assert!(!renewed.wants_renewal(now_s + 94 * DAY_S) && renewed.wants_renewal(now_s + 96 * DAY_S));
}

#[test]
fn a_proof_is_of_one_secret_one_name_and_one_key() {
    let (secret, other) = (Secret::generate().expect("random"), Secret::generate().expect("random"));
    let proof = secret.proof("oss1", &[7; 32]);
    assert!(is_proof(&secret.hash(), "oss1", &[7; 32], &proof));
    assert!(!is_proof(&secret.hash(), "oss2", &[7; 32], &proof));
    assert!(!is_proof(&secret.hash(), "oss1", &[8; 32], &proof));
    assert!(!is_proof(&other.hash(), "oss1", &[7; 32], &proof));
    assert_ne!(secret.id(), other.id());
}

#[test]
fn tokens_are_read_as_printed_and_damage_is_told() {
    let token = Token {
        cluster: CLUSTER,
        authority: [7; 32],
        secret: Secret::generate().expect("random"),
        roles: Roles::of(&[HostRole::Client]),
        mgs: vec!["mgs1:9880".parse().expect("an address")],
        expires_s: NOW_S,
    };
    let text = token.to_string();
    assert_eq!(format!("  {text}\n").parse::<Token>(), Ok(token));
    let half: Result<Token> = text[..text.len() - 3].parse();
    assert_eq!(half.unwrap_err().why, ["it is damaged: copy it again, whole"]);
    assert_eq!("hello".parse::<Token>().unwrap_err().code, Code::BadToken);
}

#[test]
fn fuzz_what_is_typed_or_stored() {
    let authority = Authority::new(CLUSTER, NOW_S).expect("made");
    let host = identity(&authority, "oss1", &[HostRole::Server]);
    let seeds = [authority.to_pem(), host.to_pem(), host.name().to_string(), "server,admin".to_owned()];
    let seeds: Vec<Vec<u8>> = seeds.into_iter().map(String::into_bytes).collect();
    let taken = fuzz::try_bytes("identities, tokens and names", seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        drop(text.parse::<Token>());
        drop(text.parse::<Roles>());
        drop(Authority::from_pem(&text));
        let identity = Identity::from_pem(&text).ok().map(|identity| identity.to_pem());
        let name = text.parse::<Name>().ok().map(|name| name.to_string());
        Ok(identity.or(name).map(String::into_bytes))
    });
    assert!(taken > 0, "nothing was taken, so nothing was tried");
}
