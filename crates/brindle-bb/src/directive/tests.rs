use proptest::prelude::*;

use super::*;

/// The job script of the seed, as Slurm hands it over: `--bb` has become a line, and a NUL ends it.
const SEED: &str = "#!/bin/bash\n#DW jobdw capacity=33600GiB access_mode=striped type=scratch\n\
    #DW stage_in type=directory source=/home/user/data-in/  destination=$DW_JOB_STRIPED/data\n\n\
    #DW stage_out type=directory source=$DW_JOB_STRIPED/data  destination=/home/user/data-out/ \n\
    srun ./work\n\0";

#[test]
fn the_job_of_the_seed_is_read() {
    let request = parse(SEED).unwrap();
    assert_eq!(request.bytes, Some(33600 << 30));
    let transfer = |outside: &str| Transfer {
        entry: Entry::Directory,
        outside: outside.to_owned(),
        place: CopyEnd::Striped,
        inside: "data".to_owned(),
    };
    assert_eq!(request.stage_in, [transfer("/home/user/data-in/")]);
    assert_eq!(request.stage_out, [transfer("/home/user/data-out/")]);
    assert_eq!(
        parse("#!/bin/sh\n# a comment about #DW\n#SBATCH -N 2\n\n#DWARF\ntrue\n").unwrap(),
        JobRequest::default()
    );
}

/// The first line of a script that is nothing but `line`, then a command.
fn refused(line: &str) -> String {
    let fault = parse(&format!("#!/bin/sh\n{line}\n")).expect_err(line);
    assert!(matches!(fault.code, Code::BadDirective | Code::NotOffered), "{fault}");
    format!("{} {}: {}; {}", fault.what, fault.subject, fault.why.join(": "), fault.next)
}

#[test]
fn sizes_have_units() {
    let bytes = |text: &str| parse(&format!("#BB jobdw capacity={text}")).unwrap().bytes.unwrap();
    let sizes = [
        ("1048576", 1 << 20),
        ("4k", 4 << 10),
        ("100MB", 100 << 20),
        ("1.5GiB", 3 << 29),
        ("2tib", 2 << 40),
        ("1P", 1 << 50),
    ];
    for (text, wanted) in sizes {
        assert_eq!(bytes(text), wanted, "{text}");
    }
    for text in ["0", "4GX", "GiB", "-1GiB", "1e3", "99999999E"] {
        assert!(refused(&format!("#DW jobdw capacity={text}")).contains("column 11"), "{text}");
    }
}

#[test]
fn swap_has_a_size_in_whole_mib() {
    let swap = |text: &str| parse(&format!("#!/bin/sh\n#DW swap {text}\n")).unwrap().swap.unwrap();
    for (text, wanted) in [("4GiB", 4 << 30), ("3tib", 3 << 40), ("4MB", 4 << 20), ("1048577", 2 << 20)] {
        assert_eq!((swap(text).bytes, swap(text).line, swap(text).column), (wanted, 2, 10), "{text}");
    }
    let both = parse("#DW jobdw capacity=1GiB\n#DW swap 64MiB\n").unwrap();
    assert_eq!((both.bytes, both.swap.map(|swap| swap.bytes)), (Some(1 << 30), Some(64 << 20)));
}

#[test]
fn refusals_name_the_place_and_the_nearest_form() {
    let cases = [
        ("#DW jobwd capacity=1GiB", "line 2, column 5: jobwd: 'jobwd' is no command; did you mean jobdw?"),
        (
            "#DW jobdw capcity=1GiB",
            "line 2, column 11: capcity=1GiB: 'capcity' is no option here; did you mean capacity=1GiB?",
        ),
        (
            "#DW jobdw access_mode=striped",
            "line 2, column 5: jobdw: jobdw has no capacity; add capacity=SIZE, such as capacity=100GiB",
        ),
        (
            "#DW jobdw capacity=1GiB access_mode=ldbalance",
            "line 2, column 25: access_mode=ldbalance: 'ldbalance' is no access mode; write access_mode=striped, private or striped,private",
        ),
        (
            "#DW jobdw capacity=1GiB type=cache",
            "line 2, column 25: type=cache: this release does not offer type=cache yet; write type=scratch, and stage files with stage_in and stage_out",
        ),
        (
            "#DW swap",
            "line 2, column 5: swap: swap has no size; write the size on each node, such as swap 4GiB",
        ),
        ("#DW swap 4GX", "line 2, column 10: 4GX: '4GX' is no size; did you mean swap 4GiB?"),
        (
            "#DW swap size=4GiB",
            "line 2, column 10: size=4GiB: 'size=4GiB' is no size; did you mean swap 4GiB?",
        ),
        (
            "#DW swap 4 GiB",
            "line 2, column 12: GiB: swap has a size and nothing else; write the size on each node, such as swap 4GiB",
        ),
        (
            "#DW swap 1B",
            "line 2, column 10: 1B: '1B' is no size that swap can have: 1 MiB is the least; write the size on each node, such as swap 4GiB",
        ),
        (
            "#DW swap many",
            "line 2, column 10: many: 'many' is no size; write the size on each node, such as swap 4GiB",
        ),
        (
            "#DW swap 1GiB\n#BB swap 1GiB",
            "line 3, column 5: swap: a job has one swap, and line 2 has it; write the size of each node into one line",
        ),
        (
            "#DW jobdw capacity=1GiB \\",
            "line 2, column 1: #DW jobdw capacity=1GiB \\: it ends with '\\', and no line follows; remove the '\\'",
        ),
    ];
    for (line, wanted) in cases {
        assert_eq!(refused(line), wanted);
    }
}

#[test]
fn refusals_of_transfers_name_the_place_and_the_nearest_form() {
    let jobdw = "#DW jobdw capacity=1GiB\n";
    let cases = [
        (
            "#DW stage_in type=file source=in destination=$DW_JOB_STRIPED/in",
            "column 24: source=in: 'in' is no absolute path",
        ),
        ("#DW stage_in type=file source=/in destination=$DW_JOB_STRIPD/in", "did you mean $DW_JOB_STRIPED?"),
        (
            "#DW stage_in type=file source=/in destination=$DW_JOB_STRIPED/../in",
            "'..' could leave the buffer",
        ),
        ("#DW stage_in type=file source=/in destination=/tmp/x", "'/tmp/x' is not in the buffer of the job"),
        ("#DW stage_in type=lst source=/in destination=$DW_JOB_STRIPED", "did you mean type=list?"),
        ("#DW stage_in type=dir source=/in destination=$DW_JOB_STRIPED", "'dir' is no type of a transfer"),
        (
            "#DW stage_in type=file source=/in",
            "stage_in has no destination; add destination=$DW_JOB_STRIPED/PATH",
        ),
        (
            "#DW stage_out type=file source=$DW_JOB_STRIPED destination=/out",
            "it names a directory; name a file",
        ),
        (
            "#DW stage_out type=file source=$DW_JOB_PRIVATE/x destination=/out",
            "each node has another $DW_JOB_PRIVATE",
        ),
        (
            "#DW stage_out type=file source=$DW_JOB_STRIPEDx destination=/out",
            "'$DW_JOB_STRIPEDx' is no variable",
        ),
        ("#DW jobdw capacity=1GiB", "a job has one jobdw, and line 2 has it"),
    ];
    for (line, wanted) in cases {
        let said = refused(&format!("{jobdw}{line}"));
        assert!(said.contains(wanted) && said.starts_with("line 3, "), "{said}\nwanted: {wanted}");
    }
    assert!(
        refused("#DW stage_in type=file source=/in destination=$DW_JOB_STRIPED/in")
            .contains("the job has no buffer")
    );
    let said = refused(
        "#DW jobdw capacity=1GiB\ntrue\n#DW stage_out type=file source=$DW_JOB_STRIPED/x destination=/x",
    );
    assert!(said.contains("line 4, column 1") && said.contains("below the first command (line 3)"), "{said}");
}

#[test]
fn persistent_buffers_and_private_directories_are_read() {
    let script = "#BB create_persistent name=my-data capacity=2GiB access=striped type=scratch group=staff\n\
        #BB destroy_persistent name=old hurry\n#DW persistentdw name=my-data\n\
        #DW jobdw capacity=1GiB access_mode=striped,private type=scratch\n\
        #DW stage_in type=file source=/a destination=$DW_PERSISTENT_STRIPED_my_data/in/a\n\
        #DW stage_out type=file source=$DW_JOB_STRIPED/b destination=/b\n";
    let request = parse(script).unwrap();
    let (name, group) = ("my-data".to_owned(), Some("staff".to_owned()));
    assert_eq!(request.create, [CreateRequest { name, bytes: 2 << 30, pool: None, group }]);
    assert_eq!((request.destroy, request.persistent), (vec!["old".to_owned()], vec!["my-data".to_owned()]));
    assert_eq!(request.access, Access::StripedPrivate);
    assert_eq!(request.stage_in[0].place, CopyEnd::Persistent("my-data".to_owned()));
    assert_eq!(
        (&request.stage_in[0].inside, &request.stage_out[0].place),
        (&"in/a".to_owned(), &CopyEnd::Striped)
    );
    assert_eq!(parse("#DW jobdw capacity=1GiB access_mode=private").unwrap().access, Access::Private);
}

#[test]
fn refusals_of_persistent_buffers_name_the_place_and_the_nearest_form() {
    let cases = [
        ("#DW persistentdw", "line 2, column 5: persistentdw: persistentdw has no name; add name=NAME"),
        (
            "#DW persistentdw name=7",
            "line 2, column 18: name=7: a name is a letter and up to 31 letters, digits, '-' or '_'; such as name=shared",
        ),
        (
            "#DW persistentdw name=a\n#DW persistentdw name=a",
            "line 3, column 18: name=a: an earlier line names it; leave one of them out",
        ),
        (
            "#BB create_persistent name=a",
            "line 2, column 5: create_persistent: create_persistent has no capacity; add capacity=SIZE, such as capacity=100GiB",
        ),
        (
            "#BB create_persistent name=a capacity=1GiB access_mode=private",
            "line 2, column 44: access_mode=private: a persistent buffer is shared by all nodes of its jobs; write access_mode=striped",
        ),
        (
            "#DW persistentdw name=a-b\n#DW persistentdw name=a_b",
            "in name=a_b: 'a-b' and 'a_b' would have the same variable DW_PERSISTENT_STRIPED_a_b; use one of them in a job",
        ),
        (
            "#DW persistentdw name=a\n#DW stage_in type=file source=/x destination=$DW_PERSISTENT_STRIPED_b/x",
            "line 3, column 34: destination=$DW_PERSISTENT_STRIPED_b/x: the job does not use this persistent buffer; add #DW persistentdw name=b",
        ),
        (
            "#DW jobdw capacity=1GiB access_mode=private\n#DW stage_in type=file source=/x destination=$DW_JOB_STRIPED/x",
            "line 3, column 34: destination=$DW_JOB_STRIPED/x: the job has access_mode=private, so its nodes share no directory; write access_mode=striped,private",
        ),
    ];
    for (line, wanted) in cases {
        assert_eq!(refused(line), wanted);
    }
}

#[test]
fn lines_go_on_behind_a_backslash() {
    let script = "#!/bin/sh\n#DW jobdw \\\n#DW capacity=1GiB\\\n# type=scratch\n";
    assert_eq!(parse(script).unwrap().bytes, Some(1 << 30));
    assert!(refused("#DW jobdw capacity=1GiB \\\ntrue").starts_with("line 3, column 1: true:"));
}

#[test]
fn shell_characters_mean_nothing() {
    let line = "#DW jobdw capacity=1GiB\n#DW stage_in type=file source=/a;rm${x:-} destination=${DW_JOB_STRIPED}/b`id`*";
    assert!(refused(line).contains("variables stand for the buffer only"));
    let line = line.replace("${x:-}", "|&<>(){}*?'\"");
    let request = parse(&format!("#!/bin/sh\n{line}\n")).unwrap();
    assert_eq!(request.stage_in[0].outside, "/a;rm|&<>(){}*?'\"");
    assert_eq!(request.stage_in[0].inside, "b`id`*");
}

proptest! {
    #[test]
    fn no_script_makes_a_path_that_leaves_the_buffer(text in "[#DW BBjobdwstage_inouttypefilsrcedn=/.$\\\\{}_\n]{0,200}", path in "[./a$]{0,12}") {
        // Every text is either read or refused.
        let _ = parse(&text);
        let script = format!("#DW jobdw capacity=1GiB\n#DW stage_in type=directory source=/x destination=$DW_JOB_STRIPED{path}\n");
        if let Ok(request) = parse(&script) {
            let inside = &request.stage_in[0].inside;
            prop_assert!(!inside.starts_with('/') && inside.split('/').all(|part| part != ".." && part != "."), "{}", inside);
        }
    }
}
