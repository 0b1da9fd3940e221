//! brindle-kv
