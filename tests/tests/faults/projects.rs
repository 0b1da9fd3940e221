//! Projects: a directory with a limit of its own, through the kernel and through `lfs project`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, chown};
use std::path::Path;
use std::process::Command;

use brindle_tests::cluster::Cluster;
use brindle_tests::users::{ANN, BOB, run_as};

use crate::quota::{LIMIT_BYTES, check, counted, fill, over, up, used_bytes, wait_until_heard};
use crate::stripes::{self, BLOCK};

/// Most bytes that the local file systems of the OSTs need for the map of a file whose blocks two mounts write by turns. No reservation
/// covers these bytes.
const MAP_BYTES_MAX: u64 = 1 << 20;
/// The project of the tests, as options of `lfs quota`.
const PROJECT: [&str; 2] = ["-p", "1000"];

/// Makes a directory of the project in which everybody may write.
fn tree(cluster: &Cluster) {
    let dir = cluster.a().join("tree");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    cluster.lfs(&["project", "-p", "1000", "-s", &dir.display().to_string()]);
}

/// Output of a program about a path.
fn said(program: &str, words: &[&str], path: &Path) -> String {
    let done = Command::new(program).args(words).arg(path).output().unwrap();
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The project that `lsattr` shows.
fn project_of(path: &Path) -> u32 {
    said("lsattr", &["-p", "-d"], path).split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn two_mounts_fill_a_directory_to_the_limit_of_its_project_and_no_further() {
    let cluster = up("project-two");
    tree(&cluster);
    let mount = cluster.a().display().to_string();
    cluster.lfs(&["setquota", "-p", "1000", "-B", &(LIMIT_BYTES / 1024).to_string(), &mount]);
    wait_until_heard(&cluster, BOB, "tree", LIMIT_BYTES);
    let users = [BOB, ANN];
    let filling = |(id, mount): (u64, &std::path::PathBuf)| {
        let (path, user) = (mount.join(format!("tree/fill{id}")), users[id as usize - 1]);
        std::thread::spawn(move || {
            run_as(user, || {
                let file = File::create(&path).unwrap();
                let done = fill(&file, id, 0, 1);
                file.sync_all().unwrap_or_else(|e| panic!("{done} blocks were acknowledged: {e}"));
                done
            })
        })
    };
    let writers: Vec<_> = (1..).zip(cluster.mounts()).map(filling).collect();
    let written: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let bytes = written.iter().sum::<u64>() * BLOCK as u64;
    assert!(bytes > LIMIT_BYTES / 4 * 3, "only {written:?} blocks were allowed");
    let used = counted(&cluster, &PROJECT, bytes);
    assert!(bytes <= used && used <= LIMIT_BYTES, "{bytes} bytes, counted {used}");
    for (id, done) in (1..).zip(&written) {
        check(&cluster.mounts()[2 - id as usize].join(format!("tree/fill{id}")), id, 0..*done);
    }

    // df shows the rest of the limit.
    let space = rustix::fs::statvfs(cluster.b().join("tree")).unwrap();
    assert_eq!(space.f_blocks * space.f_frsize, LIMIT_BYTES);
    assert!(space.f_bavail * space.f_frsize <= LIMIT_BYTES - bytes);
    assert!(rustix::fs::statvfs(cluster.b()).unwrap().f_blocks * space.f_frsize > LIMIT_BYTES);

    // Outside of the directory there is no limit, and a restart changes nothing.
    run_as(BOB, || std::fs::write(cluster.b().join("outside"), vec![1; 8 << 20]).unwrap());
    cluster.kill(&["mdt0"]);
    cluster.start(&["mdt0"]);
    let more =
        |name: &str| run_as(ANN, || File::create(cluster.a().join(name)).map(|file| fill(&file, 9, 0, 1)));
    assert!(more("tree/more").unwrap() * BLOCK as u64 + used <= LIMIT_BYTES, "more than is allowed");

    // A file that leaves the project makes room in it.
    let first = cluster.b().join("tree/fill1");
    let moved = first.metadata().unwrap().len();
    cluster.lfs(&["project", "-p", "0", &first.display().to_string()]);
    assert!(used_bytes(&cluster, &PROJECT) <= LIMIT_BYTES - moved);
    assert!(more("tree/again").unwrap() > 0, "there is room again");
    cluster.assert_sound();
}

#[test]
fn projects_are_seen_and_set_by_the_tools_of_linux_and_of_lustre() {
    let cluster = up("project-tools");
    tree(&cluster);
    let dir = cluster.a().join("tree");
    let text = dir.display().to_string();
    std::fs::create_dir(dir.join("below")).unwrap();
    std::fs::write(dir.join("below/file"), "text").unwrap();
    std::os::unix::fs::symlink("file", dir.join("below/link")).unwrap();
    assert_eq!(project_of(&cluster.b().join("tree/below/file")), 1000);
    assert!(said("lsattr", &["-d"], &dir).contains('P'), "the directory gives its project on");
    assert_eq!(cluster.lfs(&["project", "-d", &text]), format!(" 1000 P {text}\n"));
    let mut lines: Vec<String> = cluster.lfs(&["project", "-r", &text]).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    let expected = [
        format!(" 1000 - {text}/below/file"),
        format!(" 1000 - {text}/below/link"),
        format!(" 1000 P {text}/below"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(cluster.lfs(&["project", "-c", "-r", &text]), "", "all is as it should be");

    said("chattr", &["-p", "7"], &dir.join("below/file"));
    said("chattr", &["-P"], &dir.join("below"));
    let checked = cluster.lfs(&["project", "-c", "-r", &text]);
    let mut checked: Vec<&str> = checked.lines().collect();
    checked.sort_unstable();
    let flag = format!("{text}/below - project inheritance flag is not set");
    let number = format!("{text}/below/file - project identifier is not set (inode=7, tree=1000)");
    assert_eq!(checked, [&flag[..], &number[..]]);
    let found = cluster.lfs(&["find", &text, "--projid", "7"]);
    assert_eq!(found, format!("{text}/below/file\n"));

    // The owner may, others may not; other flags are not known.
    chown(dir.join("below/file"), Some(BOB.uid), Some(BOB.gid)).unwrap();
    let set =
        |id: &str| Command::new("chattr").args(["-p", id]).arg(dir.join("below/file")).output().unwrap();
    assert!(run_as(BOB, || set("8")).status.success());
    assert!(!run_as(ANN, || set("9")).status.success());
    assert_eq!(project_of(&dir.join("below/file")), 8);
    let immutable = Command::new("chattr").arg("+i").arg(dir.join("below/file")).output().unwrap();
    assert!(!immutable.status.success());
    cluster.lfs(&["project", "-C", "-r", &text]);
    assert_eq!(cluster.lfs(&["project", "-d", &text]), format!("    0 - {text}\n"));
    assert_eq!(counted_inodes(&cluster), "0");
    cluster.assert_sound();
}

/// Inodes that are counted for the project.
fn counted_inodes(cluster: &Cluster) -> String {
    let line = cluster.lfs(&["quota", "-q", "-p", "1000", &cluster.a().display().to_string()]);
    line.split_whitespace().rev().nth(3).unwrap().to_owned()
}

#[test]
fn a_file_of_another_project_is_copied_into_a_directory_not_moved() {
    let cluster = up("project-move");
    tree(&cluster);
    let (outside, inside) = (cluster.a().join("outside"), cluster.b().join("tree/inside"));
    std::fs::write(&outside, "text").unwrap();
    let refused = |outcome: io::Result<()>| {
        assert_eq!(outcome.expect_err("it is in another project").raw_os_error(), Some(libc::EXDEV));
    };
    refused(std::fs::rename(&outside, cluster.a().join("tree/inside")));
    refused(std::fs::hard_link(&outside, cluster.a().join("tree/inside")));
    let moved = Command::new("mv").arg(&outside).arg(cluster.a().join("tree/inside")).status().unwrap();
    assert!(moved.success());
    assert_eq!(std::fs::read_to_string(&inside).unwrap(), "text");
    assert_eq!(project_of(&inside), 1000, "the copy is in the project");
    assert_eq!(counted_inodes(&cluster), "2");
    std::fs::rename(&inside, cluster.b().join("out")).unwrap();
    assert_eq!(project_of(&cluster.a().join("out")), 1000, "it keeps its project where none is inherited");

    // No more inodes than the project may have, whoever makes them.
    let mount = cluster.a().display().to_string();
    cluster.lfs(&["setquota", "-p", "1000", "-I", "3", &mount]);
    run_as(BOB, || std::fs::create_dir(cluster.a().join("tree/d")).unwrap());
    run_as(ANN, || over(File::create(cluster.b().join("tree/e"))));
    cluster.assert_sound();
}

#[test]
fn a_file_that_two_mounts_write_is_limited_by_the_project_that_it_is_put_into() {
    let cluster = up("project-open");
    tree(&cluster);
    let mount = cluster.a().display().to_string();
    cluster.lfs(&["setquota", "-p", "1000", "-B", &(LIMIT_BYTES / 1024).to_string(), &mount]);
    wait_until_heard(&cluster, BOB, "tree", LIMIT_BYTES);
    let paths: Vec<_> = cluster.mounts().iter().map(|mount| mount.join("shared")).collect();
    let blocks = (8 << 20) / BLOCK as u64;
    let files = run_as(BOB, || {
        let files =
            [File::create(&paths[0]).unwrap(), OpenOptions::new().write(true).open(&paths[1]).unwrap()];
        for index in 0..blocks {
            let file = &files[index as usize % 2];
            file.write_all_at(&stripes::block(1, index, 1), index * BLOCK as u64).unwrap();
        }
        files
    });
    cluster.lfs(&["project", "-p", "1000", &paths[0].display().to_string()]);
    let written = run_as(BOB, || {
        let more = [fill(&files[0], 1, blocks, 2), fill(&files[1], 1, blocks + 1, 2)];
        files.iter().for_each(|file| file.sync_all().unwrap());
        blocks + more.iter().sum::<u64>()
    });
    drop(files);
    let bytes = written * BLOCK as u64;
    assert!(bytes > LIMIT_BYTES / 2, "only {bytes} bytes were allowed");
    let used = counted(&cluster, &PROJECT, bytes);
    assert!(bytes <= LIMIT_BYTES && bytes <= used, "{bytes} bytes, counted {used}");
    assert!(used <= LIMIT_BYTES + MAP_BYTES_MAX, "{bytes} bytes, counted {used}");
    cluster.assert_sound();
}
