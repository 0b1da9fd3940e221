//! A small in-memory file system behind the real kernel, with everything a probe needs: a log of the requests that
//! arrived, gates that hold requests back, changes "from another client" that the kernel is not told of, and a choice
//! of the flags that each open is answered with.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod locks;
pub mod mapping;
pub mod memfs;
pub mod mount;
pub mod sys;

pub use mapping::Mapping;
pub use memfs::MemFs;
pub use mount::Mount;
