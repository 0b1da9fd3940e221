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
            "line 2, column 25: access_mode=ldbalance: 'ldbalance' is no access mode; write access_mode=striped",
        ),
        (
            "#DW jobdw capacity=1GiB type=cache",
            "line 2, column 25: type=cache: this release does not offer type=cache yet; write type=scratch, and stage files with stage_in and stage_out",
        ),
        (
            "#DW swap 10GiB",
            "line 2, column 5: swap: this release does not offer swap yet; use a buffer of the job: #DW jobdw capacity=SIZE access_mode=striped type=scratch",
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
        ("#DW stage_in type=list source=/in destination=$DW_JOB_STRIPED", "does not offer type=list yet"),
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
            "does not offer $DW_JOB_PRIVATE yet",
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
        // Whatever it is, it is read or refused.
        let _ = parse(&text);
        let script = format!("#DW jobdw capacity=1GiB\n#DW stage_in type=directory source=/x destination=$DW_JOB_STRIPED{path}\n");
        if let Ok(request) = parse(&script) {
            let inside = &request.stage_in[0].inside;
            prop_assert!(!inside.starts_with('/') && inside.split('/').all(|part| part != ".." && part != "."), "{}", inside);
        }
    }
}
