//! brindle-client
