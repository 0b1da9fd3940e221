//! The table of operations: number, name, whether a request goes through a slot, and whether it is for administrators.
//!
//! A slotted operation changes durable state and is executed exactly once per (session, slot, sequence). The others
//! read, or are idempotent by their nature. What is `for_administrators` changes, or tells, what belongs to the whole file system;
//! servers refuse it from anybody else before anything is looked at (`brindle_net::Caller`).

macro_rules! ops {
    ($($number:literal $name:ident $label:literal $kind:ident $($right:ident)?;)*) => {
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

            /// Whether only administrators may ask for it.
            pub fn for_administrators(self) -> bool {
                match self { $(Op::$name => ops!(@right $($right)?),)* }
            }
        }
    };
    (@right for_administrators) => { true };
    (@right) => { false };
    (@slotted) => { true };
    (@plain) => { false };
}

ops! {
    // 1-99: connection and session
    1 SessionOpen "session_open" plain;
    2 SessionRenew "session_renew" plain;
    3 SessionClose "session_close" plain;
    4 Reclaim "reclaim" plain;
    5 TargetInfo "target_info" plain;
    // 100-299: MDS
    100 Lookup "lookup" plain;
    101 Getattr "getattr" plain;
    102 Setattr "setattr" slotted;
    103 Create "create" slotted;
    104 Mkdir "mkdir" slotted;
    105 Mknod "mknod" slotted;
    106 Symlink "symlink" slotted;
    107 Link "link" slotted;
    108 Unlink "unlink" slotted;
    109 Rmdir "rmdir" slotted;
    110 Rename "rename" slotted;
    111 Tmpfile "tmpfile" slotted;
    112 Readlink "readlink" plain;
    113 Readdir "readdir" plain;
    114 Getxattr "getxattr" plain;
    115 Listxattr "listxattr" plain;
    116 Setxattr "setxattr" slotted;
    117 Removexattr "removexattr" slotted;
    118 MdtStatfs "mdt_statfs" plain;
    119 OpenAhead "open_ahead" slotted;
    120 Open "open" slotted;
    121 Close "close" slotted;
    122 Report "report" slotted;
    123 Fsync "fsync" slotted;
    124 SyncAll "sync_all" plain;
    125 InlineRead "inline_read" plain;
    126 InlineWrite "inline_write" slotted;
    127 Convert "convert" slotted;
    128 LayoutGet "layout_get" plain;
    129 AppendReserve "append_reserve" slotted;
    130 AppendDone "append_done" slotted;
    131 Invalidate "invalidate" plain;
    132 Spill "spill" slotted;
    140 GetLock "get_lock" plain;
    141 SetLock "set_lock" plain;
    142 CancelLock "cancel_lock" plain;
    150 SetStripe "set_stripe" slotted;
    151 GetStripe "get_stripe" plain;
    152 PathOf "path_of" plain;
    153 Scan "scan" plain;
    154 Migrate "migrate" slotted;
    155 OstUse "ost_use" plain;
    160 OwnerQuery "owner_query" plain;
    161 MdtWaits "mdt_waits" plain;
    162 FenceTable "fence_table" plain;
    180 QuotaSet "quota_set" plain;
    181 QuotaRoom "quota_room" plain;
    182 QuotaUse "quota_use" plain;
    183 ChangelogRegister "changelog_register" plain for_administrators;
    184 ChangelogDeregister "changelog_deregister" plain for_administrators;
    185 ChangelogClear "changelog_clear" plain for_administrators;
    186 ChangelogRead "changelog_read" plain for_administrators;
    187 ChangelogInfo "changelog_info" plain for_administrators;
    188 ChangelogMask "changelog_mask" plain for_administrators;
    // 300-399: OSS
    300 Read "read" plain;
    301 Write "write" slotted;
    302 Punch "punch" slotted;
    303 Allocate "allocate" slotted;
    304 TruncateObject "truncate_object" plain;
    305 SyncObjects "sync_objects" plain;
    306 StatObjects "stat_objects" plain;
    307 DestroyObjects "destroy_objects" plain;
    308 Seek "seek" plain;
    309 FenceSession "fence_session" plain;
    310 FenceLayout "fence_layout" plain;
    311 OstStatfs "ost_statfs" plain;
    312 CopyRange "copy_range" slotted;
    313 ListObjects "list_objects" plain;
    314 ReturnGrant "return_grant" plain;
    // 400-499: MGS
    400 Register "register" plain;
    401 GetMap "get_map" plain;
    402 Heartbeat "heartbeat" plain;
    410 ChangePool "change_pool" plain for_administrators;
    411 ChangeTarget "change_target" plain for_administrators;
    // 500-599: server to client, on the client's own connection
    500 RecallNotice "recall_notice" plain;
    501 InvalidateNotice "invalidate_notice" plain;
    502 LayoutNotice "layout_notice" plain;
    503 ReportNotice "report_notice" plain;
    504 SessionEndNotice "session_end_notice" plain;
    505 SettleNotice "settle_notice" plain;
    506 LeaseNotice "lease_notice" plain;
    507 ClosedNotice "closed_notice" plain;
}
