use std::collections::BTreeMap;

use super::*;
use crate::lex::{Text, words_of};
use crate::trigger::{Level, On};

/// The text that the paper of seed 002 prints, typed from it.
const SEED: &str = "Migration_policies {
  policy default {
    condition {
      last_mod > 5min
    }
  }
}
Purge_trigger {
  trigger_on          = global_usage;
  high_threshold_pct = 66%;
  low_threshold_pct  = 33%;
  check_interval     = 5min;
}
";

fn program(text: &str) -> Result<Program> {
    Program::of(&words_of(text)?)
}

fn why(text: &str) -> String {
    program(text).expect_err(text).to_string()
}

#[test]
fn the_seeds_text_is_understood() {
    let seed = program(SEED).unwrap();
    // (The paper prints no Purge_policies: the trigger alone releases what is archived.)
    assert_eq!(seed.policies.len(), 2, "{:?}", seed.warnings);
    let migration = seed.policy("migration").unwrap();
    assert_eq!(
        (migration.action.clone(), migration.rules[0].condition.to_string().as_str()),
        (Action::Archive, "last_mod > 5min")
    );
    assert_eq!(migration.parameters.interval_secs, Some(60));
    let purge = seed.policy("purge").unwrap();
    let trigger = &purge.triggers[0];
    assert_eq!(
        (&trigger.on, trigger.high, trigger.low),
        (&On::Global, Some(Level::Pct(66.0)), Some(Level::Pct(33.0)))
    );
    assert_eq!((trigger.interval_secs, purge.action.deletes()), (300, false));
    assert_eq!(purge.rules[0].condition, Condition::Constant(true));
}

/// 2.5 in its old spellings.
const OLD: &str = "# -*- mode: c; -*-
General { fs_path = \"/mnt/scratch\"; fs_type = lustre; stay_in_fs = TRUE; }
Log { debug_level = EVENT; log_file = \"/var/log/r.log\"; alert_mail = \"root@x\"; }
ListManager { MySQL { server = \"db\"; db = \"r\"; } commit_behavior = transaction; }
ChangeLog { MDT { mdt_name = \"MDT0000\"; reader_id = \"cl1\"; } force_polling = ON; }
EntryProcessor { nb_threads = 4; Alert large { type == file and size > 1TB } }
db_update_policy { md_update = on_event_periodic(1sec,1min); path_update = on_event; }
Filesets {
  FileClass small{ definition { type == file and size <= 1MB } archive_id = 2; migration_hints = \"cos={fileclass}\"; }
  FileClass Climate { definition { tree == \"/mnt/scratch/climate\" or xattr.user.project == climate } }
  FileClass both { definition { small INTER NOT climate } } # set of classes
}
Migration_Policies {
  ignore { name == \"*.tmp\" or tree == '/mnt/scratch/tmp' }
  ignore_fileclass = climate;
  policy of_small { target_fileclass = both; target_fileclass = small; condition { last_mod > 1h } migration_hints = \"x\"; }
  policy default { condition { last_mod >= 15min } }
}
Migration_parameters { nb_threads_migration = 8; runtime_interval = 15min; max_migration_count = 1000; max_migration_volume = 10TB;
  check_copy_status_on_startup = TRUE; check_copy_status_delay = 30min; pre_maintenance_window = 24h; maint_migr_delay_min = 30min; }
hsm_remove_policy { hsm_remove = enabled; deferred_remove_delay = 24h; }
Purge_policies { policy default { condition { last_mod > 12h } } }
Purge_trigger { trigger_on = OST_usage; high_watermark_pct = 85%; low_watermark_pct = 80%; check_interval = 5min; }
Purge_trigger { trigger_on = user_usage(ann, bob); high_threshold_vol = 10TB; low_threshold_vol = 9TB; check_interval = 12h; alert_high = yes; }
Purge_parameters { nb_threads_purge = 4; post_purge_df_latency = 1min; purge_queue_size = 4096; db_result_size_max = 10000; }
rmdir_policy { age_rm_empty_dirs = 1d; ignore { depth < 2 } }
";

#[test]
fn the_old_spellings_are_understood() {
    let mut old = program(OLD).unwrap();
    old.place(&[]).unwrap();
    let migration = old.policy("migration").unwrap();
    let rules: Vec<&str> = migration.rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!((rules, migration.rules[0].targets.len()), (vec!["of_small", "default"], 2));
    assert_eq!(migration.ignore[0].to_string(), "name == \"*.tmp\" or tree == \"/tmp\"");
    assert_eq!(migration.ignore.len(), 2);
    let parameters = &migration.parameters;
    assert_eq!(
        (parameters.threads, parameters.interval_secs, parameters.bytes_max),
        (8, Some(900), Some(10 << 40))
    );
    assert_eq!(old.classes["small"].archive, Some(2));
    assert_eq!(
        old.classes["both"].definition.to_string(),
        "fileclass == \"small\" and not fileclass == \"climate\""
    );
    let purge = old.policy("purge").unwrap();
    assert_eq!((purge.triggers.len(), purge.parameters.post_wait_secs), (2, Some(60)));
    let rmdir = old.policy("rmdir").unwrap();
    assert!(rmdir.deletes() && rmdir.parameters.count_max == Some(DELETIONS_MAX));
    assert_eq!(old.xattrs, ["user.project"]);
    let ignored: Vec<&str> = old.ignored.iter().map(|(_, what)| what.as_str()).collect();
    for what in [
        "block Log",
        "block ListManager",
        "Migration_parameters: check_copy_status_delay",
        "rule of_small: migration_hints",
    ] {
        assert!(ignored.contains(&what), "{what}: {ignored:?}");
    }
}

/// Version 3.
const NEW: &str = "
%include \"includes/lhsm.inc\"
fileclass old_scratch { definition { tree == \"scratch\" and type == file } report = no; }
define_policy cleanup2 { scope { type == file and owner != root } status_manager = none; default_action = common.unlink; default_lru_sort_attr = creation; }
define_policy touch { scope = all_of_it; }
";

#[test]
fn the_third_version_is_understood() {
    let read = |name: &str, _: Option<&str>| {
        match name {
        "main" => Ok(Text { name: name.into(), dir: String::new(), text: NEW.replace("define_policy touch { scope = all_of_it; }", "
            define_policy scan { scope = true; status_manager = lhsm(archive); default_action = cmd(\"/usr/bin/scan --file {fullpath} {fid}\"); }
            lhsm_archive_rules { rule r { target_fileclass = old_scratch; condition = true; action_params { archive_id = 3; } }
                                 rule default { condition { last_mod > 1h } } }
            lhsm_archive_trigger { trigger_on = scheduled; check_interval = 1h; max_action_count = 5k; }
            lhsm_archive_parameters { nb_threads = 2; schedulers = common.rate_limit; rate_limit { max_count = 100; max_size = 1GB; period_ms = 500; }
                                      lru_sort_attr = size; suspend_error_pct = 50%; suspend_error_min = 10; report_interval = 10min; }
            cleanup2_rules { ignore_fileclass = old_scratch; rule default { condition { last_mod > 30d } } }
            cleanup2_trigger { trigger_on = global_usage; high_threshold_cntpct = 80%; low_threshold_cntpct = 70%; check_interval = 1h; }
            scan_rules { rule default { condition { size > 1k } action = common.log; } }") }),
        other => Err(format!("there is no file '{other}'")),
    }
    };
    let source = Source { read: &read, defines: &BTreeMap::new(), environment: &|_| None };
    let new = Program::load(&source, "main").unwrap();
    let archive = new.policy("lhsm_archive").unwrap();
    assert_eq!((archive.rules[0].archive, archive.parameters.order), (Some(3), Order::Size));
    assert_eq!((archive.parameters.rate_count, archive.parameters.period_ms), (Some(100), 500));
    assert_eq!((archive.parameters.interval_secs, archive.triggers[0].count_max), (None, Some(5000)));
    let cleanup = new.policy("CLEANUP2").unwrap();
    assert!(cleanup.deletes() && cleanup.parameters.order == Order::Creation);
    let scan = new.policy("scan").unwrap();
    assert_eq!((scan.rules[0].action.clone(), scan.deletes()), (Some(Action::Log), true));
    assert_eq!(
        scan.action,
        Action::Command(["/usr/bin/scan", "--file", "{fullpath}", "{fid}"].map(str::to_owned).to_vec())
    );
}

#[test]
fn what_is_not_carried_out_is_refused_with_its_place() {
    let cases = [
        ("Frobnicate { }", "t.conf:1:1"),
        ("migration_rules { rule a { condition = true; } }", "no target_fileclass"),
        ("migration_rules { rule default { } }", "has no condition"),
        (
            "migration_rules { rule a { target_fileclass = nobody; condition = true; } }",
            "there is no class 'nobody'",
        ),
        ("other_rules { rule default { condition = true; } }", "there is no policy 'other'"),
        (
            "purge_trigger { trigger_on = global_usage; high_threshold_pct = 50%; check_interval = 1; }",
            "high and a low",
        ),
        (
            "purge_trigger { trigger_on = global_usage; high_threshold_pct = 50%; low_threshold_vol = 1GB; check_interval = 1; }",
            "one kind",
        ),
        (
            "purge_trigger { trigger_on = global_usage; high_threshold_pct = 50%; low_threshold_pct = 60%; check_interval = 1; }",
            "above the high",
        ),
        (
            "purge_trigger { trigger_on = global_usage; high_threshold_pct = 50%; low_threshold_pct = 40%; }",
            "no check_interval",
        ),
        (
            "purge_trigger { trigger_on = external_command(\"x\"); check_interval = 1; }",
            "no trigger of this release",
        ),
        ("purge_parameters { lru_sort_attr = last_acces; }", "last_access, creation"),
        ("purge_parameters { nb_thread = 1; }", "t.conf:1:20"),
        (
            "define_policy x { scope = true; default_action = common.gzip; }",
            "not carried out by this release",
        ),
        (
            "define_policy x { scope = true; default_action = cmd(\"rm -rf {path}\"); }",
            "no path from the root",
        ),
        (
            "define_policy x { scope = true; default_action = cmd(\"/bin/sh -c 'rm {path}'\"); }",
            "for a shell",
        ),
        ("define_policy x { scope = true; default_action = cmd(\"/bin/x {pathh}\"); }", "stands for nothing"),
        (
            "fileclass a { definition { fileclass == b } } fileclass b { definition { not a } }",
            "defined by itself",
        ),
        ("fileclass a { definition { true } keep_newest = 2; }", "version_pattern"),
        ("migration_rules { rule default { condition = true; archive_id = 99; } }", "1 to 32"),
    ];
    for (text, what) in cases {
        assert!(why(text).contains(what), "{text}: {}", why(text));
    }
}

#[test]
fn paths_lie_in_the_file_system_or_are_refused() {
    let text = "cleanup_rules { ignore { tree == \"/mnt/keep\" } rule default { condition { path != /mnt/a and tree == b } } }";
    let mut there = program(text).unwrap();
    there.place(&["/mnt".to_owned()]).unwrap();
    assert_eq!(there.policies[0].ignore[0].to_string(), "tree == \"/keep\"");
    assert_eq!(there.policies[0].rules[0].condition.to_string(), "path != \"/a\" and tree == \"b\"");
    let elsewhere = program(text).unwrap().place(&["/mn".to_owned()]).unwrap_err().to_string();
    assert!(
        elsewhere.contains("t.conf:1:26") && elsewhere.contains("does not lie in the file system"),
        "{elsewhere}"
    );
    let nowhere = program(text).unwrap().place(&[]).unwrap_err().to_string();
    assert!(nowhere.contains("fs_path"), "{nowhere}");
}

/// The page for operators.
const PAGE: &str = include_str!("../../../../docs/operations/policies.md");

#[test]
fn the_six_policies_of_the_page_are_understood() {
    let texts: Vec<&str> =
        PAGE.split("```robinhood\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(texts.len(), 6);
    for text in &texts {
        let mut one = program(text).unwrap_or_else(|fault| panic!("{fault}\n{text}"));
        one.place(&["/mnt/scratch".to_owned()]).unwrap();
        assert!(
            !one.policies.is_empty() && one.ignored.is_empty() && one.warnings.is_empty(),
            "{text}: {:?}",
            one.warnings
        );
        assert!(
            one.policies
                .iter()
                .all(|policy| !policy.triggers.is_empty() || policy.parameters.interval_secs.is_some()),
            "{text}"
        );
    }
}

#[test]
fn what_is_ignored_is_on_the_page() {
    let page = PAGE.to_lowercase();
    for name in IGNORED_BLOCKS.iter().chain(&IGNORED_KEYS) {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}
