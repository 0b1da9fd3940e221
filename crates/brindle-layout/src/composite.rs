//! Layouts of several components: which parts of a file range lie in which, and which parts have no place yet.

use std::ops::Range;

use brindle_types::layout::{COMPONENTS_MAX, Component, EOF, STRIPE_SIZE_UNIT_BYTES};
use brindle_types::{Code, Fault, Layout, Stripe};

use crate::map::{self, ObjectRange};

/// Whether a layout that came from outside is possible; everything else here relies on it.
pub fn check(layout: &Layout) -> Result<(), Fault> {
    let refuse =
        |why: String| Err(Fault::new(Code::BadStripe).what("cannot use").subject("a layout").why(why));
    let parts = &layout.components;
    if parts.is_empty() || parts.len() > COMPONENTS_MAX {
        return refuse(format!("it has {} components", parts.len()));
    }
    let mut next = 0;
    for component in parts {
        let Component { start, end, origin, .. } = *component;
        let units = [start, origin].iter().all(|at| at.is_multiple_of(STRIPE_SIZE_UNIT_BYTES.into()));
        if start != next || end <= start || !units {
            return refuse(format!("a component from {start} to {end} where one from {next} belongs"));
        }
        if origin > start {
            return refuse(format!("objects that begin at {origin} for a component that begins at {start}"));
        }
        map::check(component)?;
        next = end;
    }
    if next != EOF {
        return refuse(format!("it ends at {next}"));
    }
    Ok(())
}

/// The components that a range of the file meets, each with its part of the range, in order.
pub fn parts(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = (&Component, Range<u64>)> {
    layout.components.iter().filter_map(move |c| {
        let part = range.start.max(c.start)..range.end.min(c.end);
        (part.start < part.end).then_some((c, part))
    })
}

/// Whether every byte of the range has an object that it can be written to.
pub fn is_placed(layout: &Layout, range: Range<u64>) -> bool {
    !layout.inline && parts(layout, range).all(|(c, _)| c.is_placed())
}

/// The range of a file as one range for each object it touches; what has no place is left out.
pub fn object_ranges(layout: &Layout, range: Range<u64>) -> Vec<ObjectRange> {
    let placed = parts(layout, range).filter(|(c, _)| c.is_placed());
    placed.flat_map(|(c, part)| map::object_ranges(c, part)).collect()
}

/// The stripe whose object holds the last byte of a file of this size; `None` for an empty file, or where that byte has no
/// place yet. A truncate that extends makes this object, so that the size can be told from the objects.
pub fn last_stripe(layout: &Layout, file_size_bytes: u64) -> Option<Stripe> {
    let last = file_size_bytes.checked_sub(1)?;
    let component = layout.at(last).filter(|c| c.is_placed())?;
    Some(Stripe { generation: component.generation, index: map::locate(component, last).stripe })
}

/// Length of a stripe's object in a file of this size without holes: what truncate cuts it to.
pub fn object_len(layout: &Layout, stripe: Stripe, file_size_bytes: u64) -> u64 {
    let len = |c: &Component| map::object_len(c, stripe.index, file_size_bytes);
    layout.parts_of(stripe.generation).map(len).max().unwrap_or(0)
}

/// Size of the file as far as one object tells: the end of its last byte that is the file's. At most the largest file.
pub fn file_size_from(layout: &Layout, stripe: Stripe, object_len_bytes: u64) -> u64 {
    let size = |c: &Component| map::file_size_from(c, stripe.index, object_len_bytes);
    layout.parts_of(stripe.generation).map(size).max().unwrap_or(0)
}

/// Start points of a search for data or a hole at or after `from`: objects, the OST of each, and the offset
/// in it. An object is searched once for each component that lies in it.
pub fn seek_start(layout: &Layout, from: u64) -> Vec<(Stripe, u16, u64)> {
    let placed = layout.components.iter().filter(|c| c.is_placed() && c.end > from);
    let place = |c: &Component, stripe: Stripe| map::object_offset(c, stripe.index, from);
    placed.flat_map(|c| c.stripes().map(move |(stripe, ost)| (stripe, ost, place(c, stripe)))).collect()
}

/// Puts the answers of the objects to a search together: `answers` holds a stripe and the place in its object that
/// was found at or after [`seek_start`] (`None`: the object has no more data). A stripe without an object answers a
/// search for data with `None`, and one for a hole with the place that was asked for. The result is `None` when the
/// file has no data (or, beyond its end, no hole) there: ENXIO.
pub fn seek_join(
    layout: &Layout,
    answers: &[(Stripe, Option<u64>)],
    from: u64,
    file_size_bytes: u64,
    data: bool,
) -> Option<u64> {
    if from >= file_size_bytes {
        return None;
    }
    for (component, part) in parts(layout, from..file_size_bytes) {
        if !component.is_placed() {
            match data {
                true => continue,
                false => return Some(part.start),
            }
        }
        let found = answers.iter().filter(|(stripe, _)| stripe.generation == component.generation);
        let found = found.filter_map(|(stripe, at)| map::file_offset(component, stripe.index, (*at)?));
        if let Some(first) = found.filter(|at| part.contains(at)).min() {
            return Some(first);
        }
    }
    // The end of a file counts as a hole, not as data.
    (!data).then_some(file_size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::component;
    use brindle_types::Pair;
    use proptest::prelude::*;

    const UNIT: u64 = STRIPE_SIZE_UNIT_BYTES as u64;

    /// Components of some units each, the last to the end of the file; `placed` says which have objects.
    fn layout(parts: &[(u64, u16, bool)]) -> Layout {
        let mut components = Vec::new();
        let mut start = 0;
        for (n, (units, count, placed)) in parts.iter().enumerate() {
            let end = if n + 1 == parts.len() { EOF } else { start + units * UNIT };
            let generation = Pair { term: 1, counter: n as u64 + 1 };
            let mut c = Component { start, end, origin: start, generation, ..component(1, *count) };
            if !placed {
                c.osts.clear();
            }
            components.push(c);
            start = end;
        }
        Layout { epoch: Pair::ZERO, body: Pair::ZERO, inline: false, components }
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        prop::collection::vec((1u64..9, 1u16..5, prop::bool::weighted(0.7)), 1..5).prop_map(|p| layout(&p))
    }

    /// A file as the model has it: whether each unit has data.
    fn answers(layout: &Layout, units: &[bool], from: u64, data: bool) -> Vec<(Stripe, Option<u64>)> {
        let is_data = |at: u64| units.get((at / UNIT) as usize).copied().unwrap_or(false);
        let find = |stripe: Stripe, start: u64| {
            let c = layout.component(stripe.generation).expect("placed");
            let mut at = start;
            loop {
                let here = map::file_offset(c, stripe.index, at).expect("small");
                let here = here < c.end && is_data(here);
                match (here == data, at / UNIT > units.len() as u64) {
                    (true, _) => return Some(at),
                    (false, true) => return None,
                    (false, false) => at = (at / UNIT + 1) * UNIT,
                }
            }
        };
        seek_start(layout, from).into_iter().map(|(s, _, start)| (s, find(s, start))).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn a_range_is_covered_once_where_it_has_a_place(
            layout in layouts(), start in 0u64..40 * UNIT, len in 0u64..40 * UNIT,
        ) {
            prop_assert!(check(&layout).is_ok());
            let mut pieces: Vec<(u64, u64)> = Vec::new();
            for range in object_ranges(&layout, start..start + len) {
                let c = layout.component(range.stripe.generation).expect("placed");
                prop_assert_eq!(layout.ost_of(range.stripe), Some(range.ost));
                pieces.extend(range.pieces(c).map(|p| (p.file_offset, p.len_bytes)));
            }
            pieces.sort_unstable();
            let mut covered = pieces.into_iter().flat_map(|(at, len)| (at / 4096)..(at + len).div_ceil(4096));
            let places = (start / 4096..(start + len).div_ceil(4096)).filter(|_| len > 0);
            let mut all_placed = true;
            for page in places {
                let placed = layout.at(page * 4096).expect("everywhere").is_placed();
                all_placed &= placed;
                if placed {
                    let mut next = covered.next();
                    if next.is_some_and(|n| n + 1 == page) {
                        // Two pieces met within a page.
                        next = covered.next();
                    }
                    prop_assert_eq!(next, Some(page));
                }
            }
            prop_assert_eq!(is_placed(&layout, start..start + len), all_placed);
        }

        #[test]
        fn seeking_finds_the_first_data_or_hole(
            layout in layouts(), units in prop::collection::vec(any::<bool>(), 1..30), from in 0u64..31 * UNIT, data: bool,
        ) {
            // Only ranges with objects have data.
            let size = units.len() as u64 * UNIT;
            let placed = |unit: usize| layout.at(unit as u64 * UNIT).expect("everywhere").is_placed();
            let units: Vec<bool> = units.iter().enumerate().map(|(n, data)| *data && placed(n)).collect();
            let got = seek_join(&layout, &answers(&layout, &units, from, data), from, size, data);
            let first = |want: bool| {
                let here = units.get((from / UNIT) as usize) == Some(&want);
                let next = (from / UNIT + 1..units.len() as u64).find(|n| units[*n as usize] == want);
                if here { Some(from) } else { next.map(|n| n * UNIT) }
            };
            let expected = match data {
                _ if from >= size => None,
                true => first(true),
                false => Some(first(false).unwrap_or(size)),
            };
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn sizes_round_trip_through_any_component(layout in layouts(), size in 1u64..60 * UNIT) {
            let end = |(stripe, _): (Stripe, u16)| {
                file_size_from(&layout, stripe, object_len(&layout, stripe, size))
            };
            let largest = layout.stripes().map(end).max().unwrap_or(0);
            prop_assert!(largest <= size);
            match last_stripe(&layout, size) {
                Some(last) => {
                    prop_assert_eq!(largest, size);
                    let ost = layout.ost_of(last).expect("placed");
                    prop_assert_eq!(end((last, ost)), size);
                }
                None => prop_assert!(!layout.at(size - 1).expect("everywhere").is_placed()),
            }
        }
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let good = layout(&[(2, 1, true), (3, 2, false)]);
        assert!(check(&good).is_ok());
        let broken = |change: fn(&mut Layout)| {
            let mut bad = good.clone();
            change(&mut bad);
            check(&bad).expect_err("refused").code
        };
        assert_eq!(broken(|l| l.components.clear()), Code::BadStripe);
        assert_eq!(broken(|l| l.components[1].end = 1 << 40), Code::BadStripe);
        assert_eq!(broken(|l| l.components[1].start += 1), Code::BadStripe);
        assert_eq!(broken(|l| l.components[0].end += UNIT), Code::BadStripe);
        assert_eq!(broken(|l| l.components[0].stripe_size_bytes = 1), Code::BadStripe);
        assert_eq!(broken(|l| l.components = vec![l.components[0].clone(); 40]), Code::BadStripe);
    }
}
