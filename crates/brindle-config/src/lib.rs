//! brindle-config
