//! The table of operations: number, name, whether a request goes through a slot, and who may ask for it.
//!
//! A slotted operation changes durable state and is executed exactly once per (session, slot, sequence). The others
//! read, or are idempotent by their nature. Servers compare the caller with this table before they look at anything else
//! (`brindle_targets::gate`).

use brindle_types::Role;

use crate::principal::{PrincipalKind, Principals};

macro_rules! ops {
    ($($number:literal $name:ident $label:literal $kind:ident [$($who:ident)*];)*) => {
        /// Number of an operation on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[allow(missing_docs)]
        pub enum Op { $($name = $number,)* }

        impl Op {
            /// Every operation in order of number.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// The operation with this number.
            pub fn from_number(number: u16) -> Option<Op> {
                match number { $($number => Some(Op::$name),)* _ => None }
            }

            /// Name used in metrics, traces and messages.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => $label,)* }
            }

            /// Whether requests go through a slot (exactly once).
            pub fn slotted(self) -> bool {
                match self { $(Op::$name => ops!(@$kind),)* }
            }

            /// Kinds of callers that may ask for it.
            pub fn askers(self) -> Principals {
                match self { $(Op::$name => Principals::of(&[$(PrincipalKind::$who,)*]),)* }
            }
        }
    };
    (@slotted) => { true };
    (@plain) => { false };
}

impl Op {
    /// Whether a target of this role answers it.
    pub fn is_served_by(self, role: Role) -> bool {
        match self as u16 {
            // `TargetInfo`: every server answers it.
            5 => true,
            1..300 => role == Role::Mdt,
            300..400 => role == Role::Ost,
            400..500 => role == Role::Mgt,
            _ => false,
        }
    }
}

ops! {
    // 1-99: connection and session
    1 SessionOpen "session_open" plain [Client];
    2 SessionRenew "session_renew" plain [Client];
    3 SessionClose "session_close" plain [Client];
    4 Reclaim "reclaim" plain [Client];
    5 TargetInfo "target_info" plain [Client Mdt Ost Mgs Administrator User Agent];
    // 100-299: MDS
    100 Lookup "lookup" plain [Client];
    101 Getattr "getattr" plain [Client];
    102 Setattr "setattr" slotted [Client];
    103 Create "create" slotted [Client];
    104 Mkdir "mkdir" slotted [Client];
    105 Mknod "mknod" slotted [Client];
    106 Symlink "symlink" slotted [Client];
    107 Link "link" slotted [Client];
    108 Unlink "unlink" slotted [Client];
    109 Rmdir "rmdir" slotted [Client];
    110 Rename "rename" slotted [Client];
    111 Tmpfile "tmpfile" slotted [Client];
    112 Readlink "readlink" plain [Client];
    113 Readdir "readdir" plain [Client];
    114 Getxattr "getxattr" plain [Client];
    115 Listxattr "listxattr" plain [Client];
    116 Setxattr "setxattr" slotted [Client];
    117 Removexattr "removexattr" slotted [Client];
    118 MdtStatfs "mdt_statfs" plain [Client Administrator User];
    119 OpenAhead "open_ahead" slotted [Client];
    120 Open "open" slotted [Client];
    121 Close "close" slotted [Client];
    122 Report "report" slotted [Client];
    123 Fsync "fsync" slotted [Client];
    124 SyncAll "sync_all" plain [Client];
    125 InlineRead "inline_read" plain [Client];
    126 InlineWrite "inline_write" slotted [Client];
    127 Convert "convert" slotted [Client];
    128 LayoutGet "layout_get" plain [Client];
    129 AppendReserve "append_reserve" slotted [Client];
    130 AppendDone "append_done" slotted [Client];
    131 Invalidate "invalidate" plain [Client];
    132 Spill "spill" slotted [Client];
    133 NoteAccess "note_access" plain [Client];
    140 GetLock "get_lock" plain [Client];
    141 SetLock "set_lock" plain [Client];
    142 CancelLock "cancel_lock" plain [Client];
    150 SetStripe "set_stripe" slotted [Client];
    151 GetStripe "get_stripe" plain [Client];
    152 PathOf "path_of" plain [Client];
    153 Scan "scan" plain [Client];
    154 Migrate "migrate" slotted [Client];
    155 OstUse "ost_use" plain [Administrator];
    160 OwnerQuery "owner_query" plain [Ost];
    161 MdtWaits "mdt_waits" plain [Client];
    162 FenceTable "fence_table" plain [Ost];
    170 ProjectGet "project_get" plain [Client];
    171 ProjectSet "project_set" slotted [Client];
    172 QuotaFileRoom "quota_file_room" plain [Client];
    173 QuotaShow "quota_show" plain [Client Administrator];
    174 QuotaChange "quota_change" plain [Client Administrator];
    175 QuotaList "quota_list" plain [Client Administrator];
    180 QuotaSet "quota_set" plain [Client];
    181 QuotaRoom "quota_room" plain [Client];
    182 QuotaUse "quota_use" plain [Client];
    183 ChangelogRegister "changelog_register" plain [Administrator];
    184 ChangelogDeregister "changelog_deregister" plain [Administrator];
    185 ChangelogClear "changelog_clear" plain [Administrator];
    186 ChangelogRead "changelog_read" plain [Administrator];
    187 ChangelogInfo "changelog_info" plain [Administrator];
    188 ChangelogMask "changelog_mask" plain [Administrator];
    190 HsmState "hsm_state" plain [Client];
    191 HsmAct "hsm_act" slotted [Client];
    192 HsmSet "hsm_set" slotted [Client];
    193 HsmRecall "hsm_recall" plain [Client];
    194 HsmTake "hsm_take" plain [Client];
    195 HsmProgress "hsm_progress" plain [Client];
    196 HsmDone "hsm_done" plain [Client];
    197 HsmInfo "hsm_info" plain [Administrator];
    198 HsmSwitch "hsm_switch" plain [Administrator];
    200 PolicyScan "policy_scan" plain [Client];
    201 PolicyRemove "policy_remove" slotted [Client];
    202 HsmBacklog "hsm_backlog" plain [Client Administrator];
    203 HsmImport "hsm_import" slotted [Client];
    204 HsmOpen "hsm_open" slotted [Client];
    205 HsmRead "hsm_read" plain [Client];
    206 HsmExtents "hsm_extents" plain [Client];
    207 HsmDivide "hsm_divide" plain [Client];
    208 HsmSpanTake "hsm_span_take" plain [Client];
    209 HsmSpanDone "hsm_span_done" plain [Client];
    210 HsmShares "hsm_shares" plain [Administrator];
    211 HsmRemove "hsm_remove" slotted [Client];
    220 BackupRead "backup_read" plain [Administrator];
    221 MdtUsage "mdt_usage" plain [Administrator];
    222 MdtLogLevel "mdt_log_level" plain [Administrator];
    223 MdtShares "mdt_shares" plain [Administrator];
    224 MdtLogLines "mdt_log_lines" plain [Administrator];
    225 MdtScrub "mdt_scrub" plain [Administrator];
    226 ListMounts "list_mounts" plain [Administrator];
    227 MountLogLines "mount_log_lines" plain [Administrator];
    228 MdtTrace "mdt_trace" plain [Administrator];
    229 MountLogLevel "mount_log_level" plain [Administrator];
    230 SessionRights "session_rights" plain [Ost];
    240 MemberAttach "member_attach" plain [Mdt];
    241 MemberLease "member_lease" plain [Mdt];
    242 MemberAppend "member_append" plain [Mdt];
    243 MemberSync "member_sync" plain [Mdt];
    244 MemberFill "member_fill" plain [Mdt];
    245 MemberVerify "member_verify" plain [Mdt];
    246 MemberCompare "member_compare" plain [Mdt];
    247 MemberScrub "member_scrub" plain [Mdt];
    // 300-399: OSS
    300 Read "read" plain [Client Ost];
    301 Write "write" slotted [Client Mdt];
    302 Punch "punch" slotted [Client];
    303 Allocate "allocate" slotted [Client];
    304 TruncateObject "truncate_object" plain [Mdt];
    305 SyncObjects "sync_objects" plain [Client Mdt];
    306 StatObjects "stat_objects" plain [Client Mdt];
    307 DestroyObjects "destroy_objects" plain [Mdt];
    308 Seek "seek" plain [Client];
    309 FenceSession "fence_session" plain [Mdt];
    310 FenceLayout "fence_layout" plain [Mdt];
    311 OstStatfs "ost_statfs" plain [Client Mdt Administrator User];
    312 CopyRange "copy_range" slotted [Client Mdt];
    313 ListObjects "list_objects" plain [Administrator];
    314 ReturnGrant "return_grant" plain [Client];
    // 320-339: between the members of a replica set
    320 ReplicaAttach "replica_attach" plain [Ost];
    321 ReplicaLease "replica_lease" plain [Ost];
    322 ReplicaChange "replica_change" plain [Ost];
    323 ReplicaLook "replica_look" plain [Ost];
    324 ReplicaList "replica_list" plain [Ost];
    325 ReplicaRead "replica_read" plain [Ost];
    326 ReplicaVerify "replica_verify" plain [Ost];
    327 ReplicaScrub "replica_scrub" plain [Ost];
    330 OstUsage "ost_usage" plain [Administrator];
    331 OstLogLevel "ost_log_level" plain [Administrator];
    332 Scrub "scrub" plain [Administrator];
    333 OstShares "ost_shares" plain [Administrator];
    334 OstLogLines "ost_log_lines" plain [Administrator];
    336 OstTrace "ost_trace" plain [Administrator];
    // 400-499: MGS
    400 Register "register" plain [Mdt Ost];
    401 GetMap "get_map" plain [Client Mdt Ost Mgs Administrator User Agent];
    402 Heartbeat "heartbeat" plain [Mdt Ost];
    403 Join "join" plain [Stranger];
    404 RenewCertificate "renew_certificate" plain [Client Administrator Agent];
    405 WatchHost "watch_host" plain [Agent];
    406 ReportHost "report_host" plain [Agent];
    407 WatchAccess "watch_access" plain [Mdt Ost Mgs Agent];
    408 KeepShared "keep_shared" plain [Agent];
    410 ChangePool "change_pool" plain [Administrator];
    411 ChangeTarget "change_target" plain [Administrator];
    412 RaiseLevel "raise_level" plain [Administrator];
    420 ListHosts "list_hosts" plain [Administrator];
    421 CreateToken "create_token" plain [Administrator];
    422 ChangeHost "change_host" plain [Administrator];
    423 ListShared "list_shared" plain [Administrator];
    424 ChangeShared "change_shared" plain [Administrator];
    425 FetchMgt "fetch_mgt" plain [Agent];
    426 NoteTerm "note_term" plain [Mdt];
    427 Events "events" plain [Administrator];
    428 TakeOrders "take_orders" plain [Agent];
    429 RestartHost "restart_host" plain [Administrator];
    430 KeepReplicas "keep_replicas" plain [Agent];
    431 ListReplicas "list_replicas" plain [Administrator];
    432 ChangeReplicas "change_replicas" plain [Administrator];
    433 ChangeInSync "change_in_sync" plain [Mdt Ost];
    434 ShowReplica "show_replica" plain [Agent];
    435 ListSpares "list_spares" plain [Administrator Agent];
    436 ChangeSpare "change_spare" plain [Administrator];
    437 NoteScrub "note_scrub" plain [Mdt Ost];
    438 ReportSpare "report_spare" plain [Agent];
    439 NoteOpening "note_opening" plain [Mdt Ost];
    440 MgsLogLevel "mgs_log_level" plain [Administrator];
    441 MgsLogLines "mgs_log_lines" plain [Administrator];
    450 WatchNodemaps "watch_nodemaps" plain [Mdt Ost Mgs Agent];
    451 ListNodemaps "list_nodemaps" plain [Administrator];
    452 ChangeNodemap "change_nodemap" plain [Administrator];
    460 WatchMappedNodemaps "watch_mapped_nodemaps" plain [Mdt Ost Mgs Agent];
    461 ListMappedNodemaps "list_mapped_nodemaps" plain [Administrator];
    462 ChangeMappedNodemap "change_mapped_nodemap" plain [Administrator];
    470 WatchLimits "watch_limits" plain [Mdt Ost Administrator];
    471 ChangeLimit "change_limit" plain [Administrator];
    472 WatchDurability "watch_durability" plain [Mdt Ost Administrator];
    473 ChangeDurability "change_durability" plain [Administrator];
    // 500-599: server to client, on the client's own connection
    500 RecallNotice "recall_notice" plain [Mdt];
    501 InvalidateNotice "invalidate_notice" plain [Mdt];
    502 LayoutNotice "layout_notice" plain [Mdt];
    503 ReportNotice "report_notice" plain [Mdt];
    504 SessionEndNotice "session_end_notice" plain [Mdt];
    505 SettleNotice "settle_notice" plain [Mdt];
    506 LeaseNotice "lease_notice" plain [Mdt];
    507 ClosedNotice "closed_notice" plain [Mdt];
    509 LogLinesNotice "log_lines_notice" plain [Mdt];
    510 LogLevelNotice "log_level_notice" plain [Mdt];
    // 600-619: between the orchestrator of burst buffers and the agents of compute nodes; no target serves them
    600 NodeRegister "node_register" plain [Client Agent];
    601 NodeOrder "node_order" plain [];
    602 NodeSlices "node_slices" plain [];
    603 NodeLogLines "node_log_lines" plain [];
    604 NodeLogLevel "node_log_level" plain [];
    605 NodeStage "node_stage" plain [];
    606 NodeOffer "node_offer" plain [Client Agent];
}
