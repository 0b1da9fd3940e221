//! Garbage in the rows of the store: every value either does not decode, or is a row that keeps its bytes.

use brindle_stdx::fuzz::try_bytes;
use brindle_wire::form::{Form, FormatLevel};

use crate::store::append::Reservation;
use crate::store::changelog::{Size, State};
use crate::store::dirent::Dirent;
use crate::store::inode::Inode;
use crate::store::limit::{Limit, Settings};
use crate::store::meta::Format;
use crate::store::reply::Reply;
use crate::store::row;
use crate::store::session::Session;
use crate::store::usage::Usage;

/// The rows of golden files, whatever they are: those of the wanted type decode.
fn golden() -> Vec<Vec<u8>> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut dirs = vec![dir];
    let mut rows = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).expect("golden files").flatten() {
            let path = entry.path();
            if path.is_dir() { dirs.push(path) } else { rows.push(std::fs::read(path).expect("a file")) }
        }
    }
    rows
}

fn try_rows<T: Form>(what: &'static str) {
    let taken = try_bytes(what, golden(), |bytes| {
        let Ok(found) = row::decode::<T>(what, b"key", bytes) else { return Ok(None) };
        let own = row::encode(FormatLevel::NEWEST, &found).map_err(|fault| fault.to_string())?;
        let again = row::decode::<T>(what, b"key", &own).map_err(|fault| fault.to_string())?;
        let twice = row::encode(FormatLevel::NEWEST, &again).map_err(|fault| fault.to_string())?;
        if twice != own {
            return Err("it changes when it is read and written".to_owned());
        }
        Ok(Some(own.to_vec()))
    });
    assert!(taken > 0, "{what}: no value decoded, the test tries nothing");
}

#[test]
fn rows_decode_or_do_not() {
    try_rows::<State>("changelog state");
    try_rows::<Size>("changelog size");
    try_rows::<Dirent>("dirent");
    try_rows::<Reservation>("append");
    try_rows::<Limit>("limit");
    try_rows::<Settings>("quota settings");
    try_rows::<Usage>("usage");
    try_rows::<Inode>("inode");
    try_rows::<Reply>("reply");
    try_rows::<Format>("format");
    try_rows::<Session>("session");
}
