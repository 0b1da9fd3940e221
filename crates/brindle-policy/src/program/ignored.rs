//! Blocks that are passed over: settings of Robinhood's own database, threads and reports, which have no meaning here. Documented in
//! docs/operations/policies.md; a test compares.

/// Blocks that are passed over with everything in them.
pub const IGNORED_BLOCKS: [&str; 24] = [
    "log",
    "listmanager",
    "mysql",
    "sqlite",
    "entryprocessor",
    "entry_processor",
    "changelog",
    "changelogs",
    "fs_scan",
    "fsscan",
    "reports",
    "report",
    "db_update_policy",
    "db_update_parameters",
    "db_update_params",
    "lhsm_config",
    "shook_config",
    "backup_config",
    "backend",
    "alerts",
    "alert_rules",
    "web",
    "logs",
    "fileclass_update",
];

/// Keys of parameters that are passed over: they steer queues, checks and reports of Robinhood's own.
pub const IGNORED_KEYS: [&str; 20] = [
    "check_actions_interval",
    "check_actions_on_startup",
    "check_copy_status_on_startup",
    "check_copy_status_delay",
    "recheck_ignored_entries",
    "recheck_ignored_classes",
    "queue_size",
    "purge_queue_size",
    "migration_queue_size",
    "db_result_size_max",
    "db_request_limit",
    "report_interval",
    "report_actions",
    "pre_maintenance_window",
    "maint_migr_delay_min",
    "maint_min_apply_delay",
    "reschedule_delay_ms",
    "pre_sched_match",
    "post_sched_match",
    "alert_low",
];

/// Whether a block is passed over.
pub fn is_ignored_block(key: &str) -> bool {
    IGNORED_BLOCKS.iter().any(|name| key.eq_ignore_ascii_case(name))
}

/// Whether a key of parameters and triggers is passed over.
pub fn is_ignored_key(key: &str) -> bool {
    IGNORED_KEYS.iter().any(|name| key.eq_ignore_ascii_case(name))
}
