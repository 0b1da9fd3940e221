//! brindle-testkit
