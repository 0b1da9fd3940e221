//! brindle-layout
