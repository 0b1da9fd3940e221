//! Bytes in pieces that follow each other in a file.

use brindle_stdx::cast::to_usize;
use bytes::Bytes;

/// Pieces, none of them empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rope {
    pieces: Vec<Bytes>,
    len_bytes: u64,
}

impl Rope {
    /// Number of bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether all of it lies together.
    pub fn is_one_piece(&self) -> bool {
        self.pieces.len() == 1
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len_bytes += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    /// Adds all of another at the end.
    pub fn append(&mut self, other: Rope) {
        self.len_bytes += other.len_bytes;
        self.pieces.extend(other.pieces);
    }

    /// The pieces of `len_bytes` from the byte `start` on; all of it must be there.
    pub fn slice(&self, start: u64, len_bytes: u64) -> impl Iterator<Item = Bytes> {
        let end = start + len_bytes;
        let mut at = 0;
        self.pieces.iter().filter_map(move |piece| {
            let here = at..at + piece.len() as u64;
            at = here.end;
            let (from, to) = (start.max(here.start), end.min(here.end));
            (from < to).then(|| piece.slice(to_usize(from - here.start)..to_usize(to - here.start)))
        })
    }

    /// The bytes as one piece.
    pub fn into_bytes(mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.swap_remove(0),
            _ => self.pieces.concat().into(),
        }
    }

    /// Bytes from offset `start` to the end.
    pub fn tail(&self, start: u64) -> Rope {
        let mut tail = Rope::default();
        self.slice(start, self.len_bytes - start).for_each(|piece| tail.push(piece));
        tail
    }
}

impl From<Bytes> for Rope {
    fn from(piece: Bytes) -> Rope {
        let mut rope = Rope::default();
        rope.push(piece);
        rope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_go_over_the_borders_of_pieces() {
        let mut rope = Rope::from(Bytes::from_static(b"abc"));
        rope.push(Bytes::new());
        rope.push(Bytes::from_static(b"defg"));
        assert_eq!(rope.len_bytes(), 7);
        let text = |rope: &Rope, start, len| rope.slice(start, len).collect::<Vec<_>>().concat();
        assert_eq!(text(&rope, 0, 7), b"abcdefg");
        assert_eq!(text(&rope, 2, 3), b"cde");
        assert_eq!(rope.slice(3, 4).count(), 1);
        assert_eq!(rope.slice(7, 0).count(), 0);
        let mut tail = rope.tail(5);
        tail.append(rope.tail(6));
        assert_eq!(text(&tail, 0, 3), b"fgg");
    }
}
