//! Orders to start anew, for daemons of hosts: volatile. The caller checks whether its order was carried out,
//! and repeats it if the MGS has changed.

use std::collections::BTreeMap;

use brindle_stdx::watch;

/// The order of a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    /// Number of the daemon's last known start.
    start: u64,
    /// Whether the daemon is to end this start.
    restart: bool,
}

/// Orders of all hosts.
#[derive(Default)]
pub(crate) struct Orders {
    hosts: watch::Sender<BTreeMap<String, Order>>,
}

impl Orders {
    /// Notes that a daemon asks for orders. A new start of the daemon has no order yet.
    pub(crate) fn asked(&self, host: &str, start: u64) {
        self.hosts.send_if_modified(|hosts| {
            let is_new = hosts.get(host).is_none_or(|order| order.start != start);
            if is_new {
                hosts.insert(host.to_owned(), Order { start, restart: false });
            }
            is_new
        });
    }

    /// Completes when this start of a daemon is to end.
    pub(crate) async fn until_restart(&self, host: &str, start: u64) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.hosts.subscribe().wait_for(|hosts| is_to_end(hosts, host, start)).await;
    }

    /// Orders the daemon to end if its last known start is `start`. Returns the last known start, and whether the order
    /// is new.
    pub(crate) fn restart(&self, host: &str, start: Option<u64>) -> (Option<u64>, bool) {
        let is_new = self.hosts.send_if_modified(|hosts| {
            let order = hosts.get_mut(host).filter(|order| Some(order.start) == start && !order.restart);
            order.map(|order| order.restart = true).is_some()
        });
        (self.hosts.borrow().get(host).map(|order| order.start), is_new)
    }

    /// A host is gone.
    pub(crate) fn forget(&self, host: &str) {
        self.hosts.send_if_modified(|hosts| hosts.remove(host).is_some());
    }
}

fn is_to_end(hosts: &BTreeMap<String, Order>, host: &str, start: u64) -> bool {
    hosts.get(host).is_some_and(|order| order.start == start && order.restart)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_for_one_start_of_a_daemon() {
        let orders = Orders::default();
        let is_told = |start| is_to_end(&orders.hosts.borrow(), "oss1", start);
        assert_eq!(orders.restart("oss1", Some(1)), (None, false), "nobody was heard");
        orders.asked("oss1", 1);
        assert_eq!(orders.restart("oss1", None), (Some(1), false));
        assert!(!is_told(1), "that was a question");
        assert_eq!(orders.restart("oss1", Some(1)), (Some(1), true));
        assert!(is_told(1) && !is_told(2));
        assert_eq!(orders.restart("oss1", Some(1)), (Some(1), false), "it was told before");
        orders.asked("oss1", 1);
        assert!(is_told(1), "the answer may have been lost");
        orders.asked("oss1", 2);
        assert!(!is_told(2), "it has started anew");
        assert_eq!(orders.restart("oss1", Some(1)), (Some(2), false), "a late order ends nobody");
        assert!(!is_told(2));
        orders.forget("oss1");
        assert_eq!(orders.restart("oss1", None), (None, false));
    }
}
