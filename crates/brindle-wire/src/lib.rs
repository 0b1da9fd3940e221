//! brindle-wire
