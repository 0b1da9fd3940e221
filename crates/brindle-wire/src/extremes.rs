//! Messages with extreme numbers, for tests of the code that answers them: each number of a message in turn, and many at once.
//!
//! A message is deserialised from a [`Maker`], which invents a value of every requested type. A new field, or a new message, is
//! therefore tested without further work.

use brindle_stdx::cast::{len_u32, low_u8};
use serde::de::value::Error;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use crate::Message;

/// Numbers at which arithmetic goes wrong. Signed ones become the least for the last of them.
pub const NUMBERS: [u64; 8] =
    [0, 1, 4095, (1 << 62) - 1, 1 << 62, i64::MAX as u64, u64::MAX - 65_535, u64::MAX];
/// A number where nobody says another.
const PLAIN: u64 = 1;
/// Most shapes of one message.
const SHAPES_MAX: usize = 24;
/// Lists and options nested deeper are empty.
const DEPTH_MAX: usize = 40;

/// The usual value of a number, by the names of the types and fields around it, the innermost last; `None` for any.
pub type Usual<'a> = &'a dyn Fn(&[&'static str]) -> Option<u64>;

/// All messages of a type: every variant, optional fields with and without a value, and in each every number in turn.
pub fn messages<M: Message>(usual: Usual<'_>) -> Vec<M> {
    let mut all = Vec::new();
    let mut shape = 0;
    loop {
        let mut plain = Maker::new(usual, shape, Wanted::Usual);
        all.extend(M::deserialize(&mut plain));
        let (numbers, variants) = (plain.numbers, plain.variants);
        for extreme in NUMBERS {
            let each = (0..numbers).map(|at| Wanted::One(at, extreme));
            for wanted in each.chain([Wanted::Unusual(extreme), Wanted::All(extreme)]) {
                all.extend(M::deserialize(&mut Maker::new(usual, shape, wanted)));
            }
        }
        shape += 1;
        // Every variant comes with optional fields that have a value, too.
        if shape > variants.clamp(2, SHAPES_MAX) {
            return all;
        }
    }
}

/// A value of each shape of a type, with the usual numbers: every variant, optional fields with and without a value.
pub fn shapes<T: DeserializeOwned>(usual: Usual<'_>) -> Vec<T> {
    let (mut all, mut shape, mut shapes) = (Vec::new(), 0, 2);
    while shape <= shapes {
        let mut maker = Maker::new(usual, shape, Wanted::Usual);
        all.extend(T::deserialize(&mut maker));
        shapes = shapes.max(maker.variants.clamp(2, SHAPES_MAX));
        shape += 1;
    }
    all
}

/// Numbers that are extreme.
#[derive(Clone, Copy)]
enum Wanted {
    Usual,
    /// One of them.
    One(usize, u64),
    /// All that have no usual value.
    Unusual(u64),
    All(u64),
}

struct Maker<'a> {
    usual: Usual<'a>,
    shape: usize,
    wanted: Wanted,
    names: Vec<&'static str>,
    numbers: usize,
    bools: usize,
    /// Most variants of an enum that was met.
    variants: usize,
}

impl<'a> Maker<'a> {
    fn new(usual: Usual<'a>, shape: usize, wanted: Wanted) -> Maker<'a> {
        Maker { usual, shape, wanted, names: Vec::new(), numbers: 0, bools: 0, variants: 0 }
    }

    fn number(&mut self) -> u64 {
        let at = self.numbers;
        self.numbers += 1;
        let usual = (self.usual)(&self.names);
        match self.wanted {
            Wanted::One(this, extreme) if this == at => extreme,
            Wanted::Unusual(extreme) if usual.is_none() => extreme,
            Wanted::All(extreme) => extreme,
            _ => usual.unwrap_or(PLAIN),
        }
    }

    fn signed(&mut self) -> i64 {
        match self.number() {
            u64::MAX => i64::MIN,
            n => i64::try_from(n).unwrap_or(i64::MAX),
        }
    }

    fn has_more(&self) -> bool {
        self.shape > 0 && self.names.len() < DEPTH_MAX
    }

    fn items<'m>(&'m mut self, left: usize) -> Items<'m, 'a> {
        Items { maker: self, left, fields: &[] }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.number();
            visitor.$visit(<$type>::try_from(number).unwrap_or(<$type>::MAX))
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Maker<'_> {
    type Error = Error;

    numbers! {
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a type that does not say what it is"))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("an identifier outside of an enum"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.bools += 1;
        visitor.visit_bool((self.shape + self.bools).is_multiple_of(2))
    }

    // Bytes are of names and keys.
    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u8(low_u8(PLAIN))
    }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_i8(low_u8(PLAIN).cast_signed())
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = self.signed();
        visitor.visit_i64(number)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f32(1.0)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(1.0)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_char('a')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("a")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("a")
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(b"a")
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bytes(b"a")
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.has_more() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.names.push(name);
        let made = visitor.visit_newtype_struct(&mut *self);
        self.names.pop();
        made
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = usize::from(self.has_more());
        visitor.visit_seq(self.items(left))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(self.items(len))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.names.push(name);
        let made = visitor.visit_seq(self.items(len));
        self.names.pop();
        made
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = usize::from(self.has_more());
        visitor.visit_map(self.items(left))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.names.push(name);
        let made = visitor.visit_seq(Items { maker: self, left: fields.len(), fields });
        self.names.pop();
        made
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.variants = self.variants.max(variants.len());
        // A variant that holds its own type comes to an end where all variants have their turn.
        let turn = self.names.len().checked_sub(DEPTH_MAX).unwrap_or(self.shape);
        let index = turn % variants.len().max(1);
        self.names.push(name);
        let made = visitor.visit_enum(Variant { maker: self, index: len_u32(index) });
        self.names.pop();
        made
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Parts of a struct, a list or a map.
struct Items<'m, 'a> {
    maker: &'m mut Maker<'a>,
    left: usize,
    /// Names of the fields of a struct.
    fields: &'static [&'static str],
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        let field = self.fields.len().checked_sub(self.left).and_then(|at| self.fields.get(at));
        self.left -= 1;
        self.maker.names.extend(field);
        let made = seed.deserialize(&mut *self.maker);
        if field.is_some() {
            self.maker.names.pop();
        }
        made.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Items<'_, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.maker).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(&mut *self.maker)
    }
}

/// A variant of an enum.
struct Variant<'m, 'a> {
    maker: &'m mut Maker<'a>,
    index: u32,
}

impl<'de, 'm, 'a> EnumAccess<'de> for Variant<'m, 'a> {
    type Error = Error;
    type Variant = Variant<'m, 'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let index: serde::de::value::U32Deserializer<Error> = self.index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.maker)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(self.maker.items(len))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Items { maker: self.maker, left: fields.len(), fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mds::report::ReportReq;
    use crate::oss::scrub::{ScrubOrder, ScrubReq};
    use crate::oss::write::WriteReq;

    #[test]
    fn every_number_and_every_variant_comes_in_turn() {
        let usual = |names: &[&'static str]| names.contains(&"Ino").then_some(77);
        let writes = messages::<WriteReq>(&usual);
        let is_usual = |write: &&WriteReq| write.object.ino.0 == 77;
        let extreme = writes.iter().filter(|write| write.offset == u64::MAX);
        assert!(extreme.clone().filter(is_usual).any(|write| write.ticket.layout_epoch.term == 1));
        assert!(extreme.filter(is_usual).any(|write| write.ticket.layout_epoch.term == u32::MAX));
        assert!(writes.iter().any(|write| write.object.ino.0 == u64::MAX));
        assert!(writes.iter().any(|write| write.claim.is_some_and(|claim| claim.holds_bytes == 1 << 62)));
        let scrubs = messages::<ScrubReq>(&usual);
        assert!(scrubs.iter().any(|scrub| scrub.order == ScrubOrder::Stop));
        let start = ScrubOrder::Start { rate_bytes: Some(u64::MAX), every_days: Some(1) };
        assert!(scrubs.iter().any(|scrub| scrub.order == start));
        let reports = messages::<ReportReq>(&usual);
        let told = reports.iter().flat_map(|report| &report.items);
        assert!(told.clone().any(|(ino, report)| ino.0 == 77 && report.allocated_bytes == Some(u64::MAX)));
        assert!(told.clone().any(|(_, report)| report.written_at.is_some_and(|at| at.secs == i64::MIN)));
    }
}
