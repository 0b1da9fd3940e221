//! brindle-mds
