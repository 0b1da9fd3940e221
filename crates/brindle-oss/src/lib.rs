//! brindle-oss
