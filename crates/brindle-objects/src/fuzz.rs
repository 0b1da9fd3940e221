//! Garbage in the tables and headers of an OST, behind checksums that are right.

use brindle_stdx::crc;
use brindle_stdx::fuzz::{Dice, rounds, seed};

use crate::format::{HEADER_SECTOR, Header, HeaderState, seal};
use crate::{boot, fence, findings, intent, slots};

/// Position of the checksum in a header.
const HEADER_CRC_AT: std::ops::Range<usize> = 8..12;

#[test]
fn headers_of_objects_decode_or_are_damaged() {
    let mut dice = Dice::new("object header");
    let good = crate::format::tests::sample().encode();
    let mut decoded = 0;
    for round in 0..rounds() {
        let mut sector = good;
        dice.overwrite(&mut sector[..160]);
        if dice.below(4) > 0 {
            sector[HEADER_CRC_AT].fill(0);
            let sum = crc(&sector);
            sector[HEADER_CRC_AT].copy_from_slice(&sum.to_be_bytes());
        }
        if let HeaderState::Good(header) = Header::decode(&sector) {
            decoded += 1;
            let again = Header::decode(&header.encode());
            assert_eq!(again, HeaderState::Good(header), "seed {}, round {round}: {sector:02x?}", seed());
        }
        let short = dice.below(HEADER_SECTOR as u64) as usize;
        assert!(!matches!(Header::decode(&sector[..short]), HeaderState::Good(_)));
    }
    assert!(decoded > 0);
}

/// Records of any length up to this.
const RECORD_MAX: u64 = 300;
/// First bytes of the records of all tables.
const MAGICS: [&[u8; 4]; 5] = [b"BBOT", b"BFNC", b"BFND", b"BINT", b"BSLT"];

#[test]
fn records_of_tables_decode_or_do_not() {
    let (mut dice, mut decoded) = (Dice::new("records"), 0);
    for _ in 0..rounds() {
        let len = 4 + dice.below(RECORD_MAX) as usize;
        let mut body: Vec<u8> = (0..len - 4).map(|_| dice.byte()).collect();
        // Half of the inputs begin like a record.
        if dice.below(2) == 0 && body.len() >= 4 {
            body[..4].copy_from_slice(*dice.pick(&MAGICS));
        }
        let mut record = body.clone();
        record.extend(crc(&body).to_be_bytes());
        let sealed: [u8; 512] = seal(&body);
        for bytes in [&record[..], &sealed, &body] {
            let decoders =
                [boot::decodes, fence::decodes, findings::decodes, intent::decodes, slots::decodes];
            decoded += decoders.iter().filter(|decodes| decodes(bytes)).count();
        }
    }
    assert!(decoded > 0, "no record decoded, the test tries nothing");
}
