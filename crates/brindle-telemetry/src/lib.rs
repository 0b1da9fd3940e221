//! brindle-telemetry
