//! brindle-bench
