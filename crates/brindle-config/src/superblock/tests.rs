//! A target is what its superblock says, or is not served.

use std::sync::Arc;

use super::*;

/// Compares with the committed bytes; `BRINDLE_GOLDEN=write` makes a file that does not exist yet.
pub(crate) fn check_golden(name: &str, bytes: &[u8]) {
    let path = format!("{}/golden/v1/{name}.bin", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BRINDLE_GOLDEN").is_some() && !std::path::Path::new(&path).exists() {
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    let golden = std::fs::read(&path).expect("golden file exists");
    assert_eq!(golden, bytes, "{name}: bytes on disk changed; that needs a new format version");
}

struct Fixture {
    dir: tempfile::TempDir,
    disk: Arc<dyn Disk>,
    _runtime: tokio::runtime::Runtime,
}

impl Fixture {
    fn path(&self) -> &str {
        self.dir.path().to_str().unwrap()
    }

    fn load(&self) -> Result<Loaded> {
        Superblock::load(&*self.disk, self.path(), &Expected::default())
    }
}

fn fixture() -> Fixture {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let disk = Arc::new(brindle_stdx::real_disk::RealDisk::new(runtime.handle().clone()));
    Fixture { dir: tempfile::tempdir().unwrap(), disk, _runtime: runtime }
}

fn sample() -> Superblock {
    Superblock {
        generation: 1,
        fs: "scratch".parse().unwrap(),
        fs_id: 0x1112_1314_1516_1718,
        target: TargetId::ost(10),
        uuid: *b"0123456789abcdef",
        created: (1_700_000_000, 5),
        mgs: vec!["10.0.0.1:9880@tcp1".parse().unwrap()],
    }
}

#[test]
fn bytes_on_disk_never_change() {
    check_golden("superblock", &sample().encode());
}

#[test]
fn missing_damaged_newer_and_foreign_are_told_apart() {
    let f = fixture();
    assert_eq!(f.load().unwrap_err().code, Code::NotATarget);
    let mut s = sample();
    s.save(&*f.disk, f.path()).unwrap();
    assert_eq!(f.load().unwrap(), Loaded { superblock: s.clone(), warning: None });
    let expected = Expected { fs: Some("other".parse().unwrap()), target: None };
    let fault = Superblock::load(&*f.disk, f.path(), &expected).unwrap_err();
    assert_eq!(fault.code, Code::ForeignTarget);
    assert_eq!(fault.why, ["it is scratch-OST000a, and a target of file system other was asked for"]);
    let expected = Expected { fs: None, target: Some(TargetId::mdt(0)) };
    assert_eq!(Superblock::load(&*f.disk, f.path(), &expected).unwrap_err().code, Code::ForeignTarget);
    let newer = envelope::seal(MAGIC, 9, b"");
    std::fs::write(f.dir.path().join("superblock.copy"), newer).unwrap();
    assert_eq!(f.load().unwrap_err().code, Code::NewerFormat);
}

#[test]
fn one_sound_copy_is_enough_and_none_is_not() {
    for lost in FILES {
        let f = fixture();
        let mut s = sample();
        s.save(&*f.disk, f.path()).unwrap();
        std::fs::remove_file(f.dir.path().join(lost)).unwrap();
        let loaded = f.load().unwrap();
        assert_eq!(loaded.superblock, s);
        let warning = loaded.warning.expect("the loss is told");
        assert!(warning.subject.ends_with(lost), "{warning}");
        for file in FILES {
            std::fs::write(f.dir.path().join(file), b"garbage").unwrap();
        }
        assert_eq!(f.load().unwrap_err().code, Code::BadSuperblock);
    }
}

#[test]
fn after_an_interrupted_write_the_newer_copy_counts() {
    let f = fixture();
    let mut s = sample();
    s.save(&*f.disk, f.path()).unwrap();
    let old = std::fs::read(f.dir.path().join(FILES[1])).unwrap();
    s.fs_id = 77;
    s.save(&*f.disk, f.path()).unwrap();
    std::fs::write(f.dir.path().join(FILES[1]), old).unwrap();
    let loaded = f.load().unwrap();
    assert_eq!(loaded.superblock, s);
    assert!(loaded.warning.expect("told").subject.ends_with(FILES[1]));
}

/// Garbage behind a checksum that is right.
#[test]
fn garbage_is_refused_or_a_superblock() {
    let body = |superblock: &Superblock| postcard::to_stdvec(superblock).expect("plain fields");
    let version = <Superblock as Form>::VERSION;
    let taken = brindle_stdx::fuzz::try_bytes("superblock", vec![body(&sample())], |bytes| {
        let Ok(found) = form::decode_version::<Superblock>(version, bytes) else { return Ok(None) };
        match form::decode_version::<Superblock>(version, &body(&found)) {
            Ok(again) if again == found => Ok(Some(body(&found))),
            other => Err(format!("it changes when it is written and read: {other:?}")),
        }
    });
    assert!(taken > 0);
}
