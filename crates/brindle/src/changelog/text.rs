//! Records and readers as Lustre prints them.

use std::fmt::Write as _;

use brindle_stdx::Timestamp;
use brindle_telemetry::log::rfc3339;
use brindle_types::attr::Time;
use brindle_types::changelog::reader_name;
use brindle_types::{Change, Ino};
use brindle_wire::mds::changelog::ChangelogInfoResp;

/// Bits of `ef=`: what the record says beyond a name.
const EXTRA_USER: u32 = 0x1;
const EXTRA_NID: u32 = 0x2;
const EXTRA_XATTR: u32 = 0x8;

/// A record, as `lfs changelog` prints it, with the end of the line. Names come as they are, but for control characters,
/// which would break lines: they are printed as `\x0a`.
pub fn record(index: u64, change: &Change) -> Vec<u8> {
    let (date, time) = utc(change.time);
    let mut line = format!(
        "{index} {:02}{:<5} {time} {date} {:#x} t={}",
        change.kind as u8,
        change.kind.label(),
        change.flags,
        fid(change.target)
    );
    let extra = [
        (change.user.is_some(), EXTRA_USER),
        (!change.nid.is_empty(), EXTRA_NID),
        (!change.xattr.is_empty(), EXTRA_XATTR),
    ];
    let extra = extra.into_iter().filter(|(is_there, _)| *is_there).fold(0, |all, (_, bit)| all | bit);
    // Writing to a String cannot fail.
    let _ = write!(line, " ef={extra:#x}");
    if let Some((uid, gid)) = change.user {
        let _ = write!(line, " u={uid}:{gid}");
    }
    if !change.nid.is_empty() {
        let _ = write!(line, " nid={}", change.nid);
    }
    let mut line = line.into_bytes();
    if !change.xattr.is_empty() {
        line.extend(b" x=");
        push_name(&mut line, &change.xattr);
    }
    if !change.name.is_empty() {
        line.extend(format!(" p={} ", fid(change.parent)).bytes());
        push_name(&mut line, &change.name);
    }
    if let Some(source) = &change.source {
        line.extend(format!(" s={} sp={} ", source.ino.fid(), source.parent.fid()).bytes());
        push_name(&mut line, &source.name);
    }
    line.push(b'\n');
    line
}

fn push_name(line: &mut Vec<u8>, name: &[u8]) {
    for byte in name {
        match byte {
            byte if byte.is_ascii_control() => line.extend(format!("\\x{byte:02x}").bytes()),
            byte => line.push(*byte),
        }
    }
}

/// A FID; zeros as Lustre's C library prints them.
fn fid(ino: Option<Ino>) -> String {
    ino.map_or_else(|| "[0:0x0:0x0]".to_owned(), |ino| ino.fid().to_string())
}

/// Date and time of day, UTC.
pub fn utc(time: Time) -> (String, String) {
    let text = rfc3339(Timestamp { secs: time.secs, nanos: time.nanos });
    let (date, rest) = text.split_once('T').unwrap_or((&text, ""));
    let (seconds, _) = rest.split_once('.').unwrap_or((rest, ""));
    (date.replace('-', "."), format!("{seconds}.{:09}", time.nanos))
}

/// `mdd.*.changelog_users`.
pub fn users(info: &ChangelogInfoResp) -> String {
    let mut text = format!("current index: {}\nID    index (idle seconds)", info.current);
    for reader in &info.readers {
        let name = reader_name(reader.id, &reader.name);
        let _ = write!(text, "\n{name:<5} {} ({})", reader.cleared, reader.idle_secs);
        if let Some(mask) = reader.mask {
            let _ = write!(text, " mask={}", mask.to_string().replace(' ', ","));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use brindle_types::changelog::{FLAG_LAST, FLAG_MODE};
    use brindle_types::{ChangeKind, ChangeSource};
    use brindle_wire::mds::changelog::ChangelogReader;

    fn shown(index: u64, change: &Change) -> String {
        String::from_utf8(record(index, change)).expect("text")
    }

    fn change(kind: ChangeKind) -> Change {
        let time = Time { secs: 1_515_510_936, nanos: 687_592_024 };
        Change {
            target: Some(Ino::new(0, 17)),
            user: Some((500, 500)),
            nid: "10.128.11.159@tcp".into(),
            ..Change::new(kind, time)
        }
    }

    #[test]
    fn records_look_as_in_lustre() {
        let parent = Some(Ino::ROOT);
        let create = Change { parent, name: b"chloe.jpg".to_vec(), ..change(ChangeKind::Create) };
        assert_eq!(
            shown(2, &create),
            "2 01CREAT 15:15:36.687592024 2018.01.09 0x0 t=[0x200000400:0x11:0x0] ef=0x3 u=500:500 \
             nid=10.128.11.159@tcp p=[0x200000400:0x1:0x0] chloe.jpg\n"
        );
        let source =
            Some(ChangeSource { ino: Ino::new(0, 18), parent: Ino::ROOT, name: b"old\nname".to_vec() });
        let name = b"new".to_vec();
        let rename = Change { target: None, parent, name, source, ..change(ChangeKind::Rename) };
        assert_eq!(
            shown(1_099_511_627_777, &rename),
            "1099511627777 08RENME 15:15:36.687592024 2018.01.09 0x0 t=[0:0x0:0x0] ef=0x3 u=500:500 \
             nid=10.128.11.159@tcp p=[0x200000400:0x1:0x0] new s=[0x200000400:0x12:0x0] \
             sp=[0x200000400:0x1:0x0] old\\x0aname\n"
        );
        let unlink = Change { flags: FLAG_LAST, kind: ChangeKind::Unlink, ..create };
        assert!(shown(3, &unlink).starts_with("3 06UNLNK 15:15:36.687592024 2018.01.09 0x1 t="));
        let close = Change { user: None, nid: String::new(), ..change(ChangeKind::Close) };
        assert_eq!(
            shown(4, &close),
            "4 11CLOSE 15:15:36.687592024 2018.01.09 0x0 t=[0x200000400:0x11:0x0] ef=0x0\n"
        );
        let xattr = Change { xattr: b"user.k".to_vec(), flags: FLAG_MODE, ..change(ChangeKind::Xattr) };
        assert_eq!(
            shown(5, &xattr),
            "5 15XATTR 15:15:36.687592024 2018.01.09 0x10 t=[0x200000400:0x11:0x0] ef=0xb u=500:500 \
             nid=10.128.11.159@tcp x=user.k\n"
        );
        let hsm = change(ChangeKind::Hsm);
        assert!(shown(6, &hsm).starts_with("6 16HSM   15:15:36.687592024"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let date = |secs| utc(Time { secs, nanos: 0 });
        assert_eq!(date(0), ("1970.01.01".to_owned(), "00:00:00.000000000".to_owned()));
        assert_eq!(date(951_782_400).0, "2000.02.29");
        assert_eq!(date(951_868_800).0, "2000.03.01");
        assert_eq!(date(4_107_542_400).0, "2100.03.01");
        assert_eq!(date(1_704_067_199), ("2023.12.31".to_owned(), "23:59:59.000000000".to_owned()));
    }

    #[test]
    fn readers_look_as_in_lustre() {
        let reader = |id, name: &str, mask: Option<&str>| ChangelogReader {
            id,
            name: name.into(),
            mask: mask.map(|mask| mask.parse().expect("a mask")),
            cleared: 8,
            idle_secs: 180,
        };
        let info = ChangelogInfoResp {
            current: 8,
            mask: brindle_types::ChangeMask::DEFAULT,
            records: 0,
            bytes: 0,
            bytes_max: 0,
            dropped_to: 0,
            readers: vec![reader(2, "", None), reader(3, "rbh", Some("CREAT,UNLNK"))],
        };
        assert_eq!(
            users(&info),
            "current index: 8\nID    index (idle seconds)\ncl2   8 (180)\ncl3-rbh 8 (180) mask=CREAT,UNLNK"
        );
    }
}
