//! `Q|ost|object`: objects that no inode owns any more, until their OST has destroyed them.

use brindle_types::{Ino, ObjectId, Result, Stripe};
use bytes::Bytes;

use super::{Changes, Rows, keys, row};

/// Queues objects of an inode.
pub fn put_all(t: &mut Changes<'_>, ino: Ino, objects: impl IntoIterator<Item = (Stripe, u16)>) {
    for (stripe, ost) in objects {
        t.put(keys::destroy(ost, &ObjectId::of(ino, stripe)), Bytes::from_static(&[row::FIRST_VERSION]));
    }
}

/// Removes an object from the queue, after the OST has confirmed its removal.
pub fn delete(t: &mut Changes<'_>, ost: u16, object: &ObjectId) {
    t.delete(keys::destroy(ost, object));
}

/// The OSTs for which something is queued, in order.
pub fn osts(rows: &(impl Rows + ?Sized)) -> Result<Vec<u16>> {
    let mut osts = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let found = rows.rows(&[keys::DESTROY], after.as_deref(), 1)?;
        let Some((key, _)) = found.first() else { return Ok(osts) };
        let (ost, _) =
            keys::split_destroy(key).ok_or_else(|| row::damaged("destroy queue", key, "short key".into()))?;
        osts.push(ost);
        // Skip everything else of this OST: no object's key is larger than this.
        after = Some([&keys::destroy_at(ost)[..], &[0xff; 24]].concat());
    }
}

/// The first objects queued for an OST, behind `after` if given.
pub fn first(
    rows: &(impl Rows + ?Sized),
    ost: u16,
    after: Option<&ObjectId>,
    limit: usize,
) -> Result<Vec<ObjectId>> {
    let after = after.map(|object| keys::destroy(ost, object));
    let found = rows.rows(&keys::destroy_at(ost), after.as_deref(), limit)?;
    let object = |key: &[u8]| {
        let split = keys::split_destroy(key).map(|(_, object)| object);
        split.ok_or_else(|| row::damaged("destroy queue", key, "short key".into()))
    };
    found.iter().map(|(key, _)| object(key)).collect()
}

/// Number of queued objects, counted up to `limit`.
pub fn count(rows: &(impl Rows + ?Sized), limit: usize) -> Result<usize> {
    Ok(rows.rows(&[keys::DESTROY], None, limit)?.len())
}
