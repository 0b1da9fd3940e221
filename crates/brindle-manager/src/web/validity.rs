//! The last moment of an X.509 certificate (RFC 5280, section 4.1), read from its DER.

/// Tags of DER.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the certificate ends, seconds since 1970; none if this is no certificate.
pub fn ends_s(der: &[u8]) -> Option<i64> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut rest, _) = element(certificate, SEQUENCE)?;
    if let Some((_, behind)) = element(rest, VERSION) {
        rest = behind;
    }
    // The serial number, the algorithm of the signature, the issuer.
    for _ in 0..3 {
        (_, _, rest) = any(rest)?;
    }
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_, _, behind) = any(validity)?;
    let (tag, text, _) = any(behind)?;
    moment(tag, std::str::from_utf8(text).ok()?)
}

/// The contents of the first element, which must have this tag, and the rest after it.
fn element(der: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, contents, behind) = any(der)?;
    (tag == expected).then_some((contents, behind))
}

/// Tag and contents of the first element, and the rest after it.
fn any(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, mut rest) = rest.split_first()?;
    let mut length = usize::from(*first);
    if length >= 0x80 {
        let (digits, behind) = rest.split_at_checked(length - 0x80)?;
        if digits.len() > 4 {
            return None;
        }
        length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
        rest = behind;
    }
    let (contents, behind) = rest.split_at_checked(length)?;
    Some((*tag, contents, behind))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn moment(tag: u8, text: &str) -> Option<i64> {
    let (year, rest) = match tag {
        UTC_TIME => {
            let year: i32 = text.get(..2)?.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u8>().ok();
    let month = time::Month::try_from(two(0)?).ok()?;
    let date = time::Date::from_calendar_date(year, month, two(2)?).ok()?;
    let clock = time::Time::from_hms(two(4)?, two(6)?, two(8)?).ok()?;
    (rest.get(10..)? == "Z").then(|| date.with_time(clock).assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_real_certificate_is_found() {
        for ends in [1_900_000_000_i64, 2_600_000_000] {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            params.not_after = time::OffsetDateTime::from_unix_timestamp(ends).unwrap();
            let key = rcgen::KeyPair::generate().unwrap();
            let der = params.self_signed(&key).unwrap().der().to_vec();
            assert_eq!(ends_s(&der), Some(ends), "as UTCTime and as GeneralizedTime");
            for length in 0..der.len() {
                assert_eq!(ends_s(&der[..length]), None, "cut to {length} bytes");
            }
            for at in 0..der.len().min(300) {
                let mut damaged = der.clone();
                damaged[at] ^= 0xff;
                // The parser must end, whatever it returns.
                let _ = ends_s(&damaged);
            }
        }
        assert_eq!(ends_s(&[]), None);
        assert_eq!(ends_s(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
