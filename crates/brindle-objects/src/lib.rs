//! brindle-objects
