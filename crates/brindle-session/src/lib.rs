//! brindle-session

pub mod locks;
