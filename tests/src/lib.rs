//! Shared helpers of the cluster tests.
