//! Present and recent activity of the cluster: numbers of the daemons, gathered once a second, and the state of targets.

pub mod history;
pub mod metrics;
pub mod rates;
pub mod ring;
pub mod scrape;
pub mod state;
