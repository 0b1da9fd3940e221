//! brindle-fuse
