//! brindle-session
