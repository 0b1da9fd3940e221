//! brindle-mgs
