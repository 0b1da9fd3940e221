//! brindle-net
