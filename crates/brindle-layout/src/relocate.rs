//! Parts of a file that move to other objects: which bytes are copied from where to where, and the layout afterwards.

use std::ops::Range;

use brindle_types::Layout;
use brindle_types::layout::Component;

use crate::composite::parts;
use crate::map::{self, StripeExtent};

/// Bytes to copy from one object into another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes to copy.
    pub source: StripeExtent,
    /// Destination: the same bytes of the file, as many.
    pub target: StripeExtent,
}

/// Copies after which the bytes of `range` lie in `to`, in order of the file. A part without a place has no bytes.
pub fn copies(from: &Layout, to: &Component, range: Range<u64>) -> Vec<Run> {
    let placed = parts(from, range).filter(|(c, _)| c.is_placed());
    let sources = placed.flat_map(|(c, part)| map::extents(c, part));
    let runs = sources.flat_map(|source| {
        let here = source.file_offset..source.file_offset + source.len_bytes;
        map::extents(to, here).into_iter().map(move |target| {
            let object_offset = source.object_offset + (target.file_offset - source.file_offset);
            let (file_offset, len_bytes) = (target.file_offset, target.len_bytes);
            Run { source: StripeExtent { object_offset, file_offset, len_bytes, ..source }, target }
        })
    });
    runs.collect()
}

/// The components once `to` has taken the place of whatever lay between where it begins and where it ends. Parts that
/// follow each other in the same objects become one.
pub fn relocated(components: &[Component], to: &Component) -> Vec<Component> {
    let mut out: Vec<Component> = Vec::with_capacity(components.len() + 2);
    let before = components.iter().filter(|c| c.start < to.start);
    let behind = components.iter().filter(|c| c.end > to.end);
    let before = before.map(|c| Component { end: c.end.min(to.start), ..c.clone() });
    let behind = behind.map(|c| Component { start: c.start.max(to.end), ..c.clone() });
    for next in before.chain([to.clone()]).chain(behind) {
        match out.last_mut() {
            Some(last) if continues(last, &next) => last.end = next.end,
            _ => out.push(next),
        }
    }
    out
}

/// Whether two components that follow each other are one part of the file.
fn continues(a: &Component, b: &Component) -> bool {
    match (a.is_placed(), b.is_placed()) {
        (true, true) => a.generation == b.generation,
        (false, false) => a.asked == b.asked && a.stripe_size_bytes == b.stripe_size_bytes,
        _ => false,
    }
}

/// The components of the file once it is emptied: as the user asked for them, wherever parts of them had moved. Only the
/// first one keeps its OSTs.
pub fn emptied(components: &[Component]) -> Vec<Component> {
    let mut out: Vec<Component> = Vec::with_capacity(components.len());
    for c in components {
        let alike = |last: &Component| last.asked == c.asked && last.stripe_size_bytes == c.stripe_size_bytes;
        match out.last_mut() {
            Some(last) if alike(last) => last.end = c.end,
            _ => {
                let osts = if out.is_empty() { c.osts.clone() } else { Vec::new() };
                out.push(Component { origin: c.start, osts, objects: Vec::new(), ..c.clone() });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::component;
    use crate::{check, locate, object_ranges};
    use brindle_types::layout::{EOF, STRIPE_SIZE_UNIT_BYTES};
    use brindle_types::{Pair, Stripe};
    use proptest::prelude::*;

    const UNIT: u64 = STRIPE_SIZE_UNIT_BYTES as u64;
    const UNITS: u64 = 64;

    fn one(counter: u64, range: Range<u64>, origin: u64, units: u32, count: u16) -> Component {
        let generation = Pair { term: 1, counter };
        let osts = (0..count).map(|i| i + 10 * counter as u16).collect();
        Component { start: range.start, end: range.end, origin, generation, osts, ..component(units, count) }
    }

    fn whole(components: Vec<Component>) -> Layout {
        Layout { epoch: Pair::ZERO, body: Pair::ZERO, inline: false, components }
    }

    /// Object and place of a byte.
    fn place(layout: &Layout, at: u64) -> (Stripe, u64) {
        let c = layout.at(at).expect("everywhere");
        let place = locate(c, at);
        (Stripe { generation: c.generation, index: place.stripe }, place.object_offset)
    }

    /// Moves: first unit, length in units (to the end of the file beyond a bound), stripe size, count.
    fn moves() -> impl Strategy<Value = Vec<(u64, u64, u32, u16)>> {
        prop::collection::vec((0..UNITS, 1..UNITS + 20, 1u32..4, 1u16..5), 1..7)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn a_move_changes_the_places_of_its_range_and_no_others(moves in moves()) {
            let mut layout = whole(vec![one(1, 0..EOF, 0, 2, 3)]);
            for (n, (first, units, size, count)) in moves.into_iter().enumerate() {
                let end = if first + units > UNITS { EOF } else { (first + units) * UNIT };
                let to = one(n as u64 + 2, first * UNIT..end, first * UNIT, size, count);
                let before = layout.clone();
                layout.components = relocated(&layout.components, &to);
                prop_assert!(check(&layout).is_ok(), "{:?}", layout);
                for unit in 0..UNITS + 30 {
                    let at = unit * UNIT + 4096;
                    let moved = at >= to.start && at < to.end;
                    let expected = if moved { place(&whole(vec![to.clone()]), at) } else { place(&before, at) };
                    prop_assert_eq!(place(&layout, at), expected);
                }
                // Every byte of the range is copied once, from where it was to where it is.
                let copied = to.start..to.end.min((UNITS + 30) * UNIT);
                let runs = copies(&before, &to, copied.clone());
                let mut at = copied.start;
                for Run { source, target } in runs {
                    prop_assert_eq!((source.file_offset, target.file_offset), (at, at));
                    prop_assert_eq!(source.len_bytes, target.len_bytes);
                    for at in [at, at + source.len_bytes - 1] {
                        let (from, into) = (place(&before, at), place(&layout, at));
                        prop_assert_eq!(from, (source.stripe, source.object_offset + (at - source.file_offset)));
                        prop_assert_eq!(into, (target.stripe, target.object_offset + (at - target.file_offset)));
                    }
                    at += source.len_bytes;
                }
                prop_assert_eq!(at, copied.end);
                // Sizes can be told from the objects, however many parts lie in them.
                for size in [1, 5 * UNIT + 77, UNITS * UNIT, (UNITS + 9) * UNIT + 1] {
                    let end = |(stripe, _)| {
                        let len = crate::object_len(&layout, stripe, size);
                        crate::file_size_from(&layout, stripe, len)
                    };
                    prop_assert_eq!(layout.stripes().map(end).max(), Some(size));
                }
                let covered: u64 = object_ranges(&layout, 0..UNITS * UNIT).iter().map(|r| r.len_bytes).sum();
                prop_assert_eq!(covered, UNITS * UNIT);
            }
            let asked = emptied(&layout.components);
            prop_assert!(check(&whole(asked)).is_ok());
        }
    }

    #[test]
    fn a_migration_piece_by_piece_ends_as_one_component() {
        let old = one(1, 0..EOF, 0, 16, 1);
        let new = one(2, 0..EOF, 0, 16, 4);
        let mut components = vec![old];
        for (start, end) in [(0, 64 * UNIT), (64 * UNIT, 128 * UNIT), (128 * UNIT, EOF)] {
            assert!(components.len() <= 2);
            components = relocated(&components, &Component { start, end, ..new.clone() });
        }
        assert_eq!(components, [new]);
    }

    #[test]
    fn what_moved_elsewhere_is_asked_for_as_before_once_the_file_is_empty() {
        let asked = [one(1, 0..32 * UNIT, 0, 16, 1), one(2, 32 * UNIT..EOF, 32 * UNIT, 32, 4)];
        let spilled = relocated(&asked, &one(3, 48 * UNIT..EOF, 48 * UNIT, 32, 2));
        let expected = [
            Component { objects: Vec::new(), ..asked[0].clone() },
            Component { osts: Vec::new(), ..asked[1].clone() },
        ];
        assert_eq!(emptied(&spilled), expected);
    }
}
