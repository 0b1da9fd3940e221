//! Inodes that a notice named while requests were under way whose answers may be about any inode.

use std::collections::BTreeSet;

use brindle_types::Ino;

/// Most inodes remembered; beyond that it may have happened to all.
const INODES_MAX: usize = 4096;

/// Notes inodes while there are questions.
#[derive(Debug, Default)]
pub(crate) struct Meanwhile {
    questions: usize,
    inodes: BTreeSet<Ino>,
    overflow: bool,
}

impl Meanwhile {
    /// A question is about to be sent.
    pub fn begin(&mut self) {
        self.questions += 1;
    }

    /// A request is answered, and its answer taken in.
    pub fn end(&mut self) {
        self.questions -= 1;
        if self.questions == 0 {
            self.inodes.clear();
            self.overflow = false;
        }
    }

    /// The change happens to `ino`.
    pub fn note(&mut self, ino: Ino) {
        if self.questions == 0 {
            return;
        }
        self.overflow |= self.inodes.len() >= INODES_MAX;
        if !self.overflow {
            self.inodes.insert(ino);
        }
    }

    /// Whether it may have happened to `ino` since the oldest question was sent.
    pub fn has(&self, ino: Ino) -> bool {
        self.overflow || self.inodes.contains(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_remembered_until_all_questions_are_answered() {
        let mut meanwhile = Meanwhile::default();
        meanwhile.note(Ino(7));
        meanwhile.begin();
        assert!(!meanwhile.has(Ino(7)), "before the question");
        meanwhile.note(Ino(8));
        meanwhile.begin();
        meanwhile.end();
        assert!(meanwhile.has(Ino(8)) && !meanwhile.has(Ino(7)));
        meanwhile.end();
        assert!(!meanwhile.has(Ino(8)));
    }

    #[test]
    fn more_than_can_be_remembered_is_taken_for_all() {
        let mut meanwhile = Meanwhile::default();
        meanwhile.begin();
        (0..INODES_MAX as u64).for_each(|ino| meanwhile.note(Ino(ino)));
        assert!(!meanwhile.has(Ino(1 << 40)));
        meanwhile.note(Ino(INODES_MAX as u64));
        assert!(meanwhile.has(Ino(1 << 40)));
        meanwhile.end();
        assert!(!meanwhile.has(Ino(1 << 40)));
    }
}
