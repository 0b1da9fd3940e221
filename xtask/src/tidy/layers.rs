//! A crate depends only on crates of lower layers, never sideways; dev-dependencies obey the same rule.

use super::{Finding, TextFile};

/// The layer of each crate. A crate that is not here is refused: put it where it belongs, with a design note.
const LAYERS: &[(u32, &[&str])] = &[
    (0, &["brindle-types", "brindle-stdx"]),
    (1, &["brindle-sim"]),
    (2, &["brindle-auth", "brindle-bb", "brindle-wire", "brindle-layout", "brindle-kv", "brindle-telemetry"]),
    (3, &["brindle-net", "brindle-objects", "brindle-config", "brindle-policy"]),
    (4, &["brindle-targets"]),
    (5, &["brindle-mgs", "brindle-mds", "brindle-oss", "brindle-client"]),
    (6, &["brindle-admin", "brindle-fuse", "brindle-hsm", "brindle-bench"]),
    (7, &["brindle-host", "brindle-testkit"]),
    (8, &["brindle-manager"]),
    (9, &["brindle"]),
    (10, &["brindle-tests", "xtask"]),
];

fn layer(name: &str) -> Option<u32> {
    LAYERS.iter().find(|(_, names)| names.contains(&name)).map(|(layer, _)| *layer)
}

/// Checks every Cargo.toml of the workspace.
pub fn check(files: &[TextFile]) -> Vec<Finding> {
    let manifests = files.iter().filter(|f| f.path != "Cargo.toml" && f.path.ends_with("/Cargo.toml"));
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(file: &TextFile) -> Vec<Finding> {
    let name = file.text.lines().find_map(|l| l.strip_prefix("name = \"")?.split('"').next()).unwrap_or("?");
    let Some(own) = layer(name) else {
        let text = format!("crate '{name}' has no layer; add it to the table in xtask/src/tidy/layers.rs");
        return vec![file.finding(1, text)];
    };
    let mut findings = Vec::new();
    let mut in_dependencies = false;
    for (index, line) in file.text.lines().enumerate() {
        if let Some(section) = line.trim().strip_prefix('[') {
            in_dependencies = section.trim_end_matches(']').ends_with("dependencies");
        }
        let Some(other) = in_dependencies.then(|| dependency(line)).flatten() else { continue };
        let Some(theirs) = layer(other) else { continue };
        if theirs >= own {
            let text = format!(
                "{name} (layer {own}) depends on {other} (layer {theirs}); depend on lower layers only, \
                 or move what both need below them"
            );
            findings.push(file.finding(index + 1, text));
        }
    }
    findings
}

/// The crate a line such as `brindle-wire.workspace = true` names.
fn dependency(line: &str) -> Option<&str> {
    let end = line.find(['.', ' ', '='])?;
    Some(line[..end].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> TextFile {
        let text = format!("[package]\nname = \"{name}\"\n{rest}");
        TextFile { path: format!("crates/{name}/Cargo.toml"), text }
    }

    #[test]
    fn upward_and_sideways_dependencies_are_refused() {
        let file = manifest(
            "brindle-mds",
            "[dependencies]\nbrindle-wire.workspace = true\nbrindle-oss = { workspace = true }\n\
             [dev-dependencies]\nbrindle-testkit.workspace = true\n",
        );
        let found: Vec<String> = check(&[file]).iter().map(Finding::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with(
            "crates/brindle-mds/Cargo.toml:5: brindle-mds (layer 5) depends on brindle-oss (layer 5);"
        ));
        assert!(found[1].contains("Cargo.toml:7:") && found[1].contains("brindle-testkit (layer 7)"));
    }

    #[test]
    fn a_crate_without_a_layer_is_refused() {
        let found = check(&[manifest("brindle-unknown", "")]);
        assert!(found[0].text.starts_with("crate 'brindle-unknown' has no layer;"));
    }

    #[test]
    fn outside_libraries_are_free() {
        assert_eq!(check(&[manifest("brindle-types", "[dependencies]\nserde.workspace = true\n")]), []);
    }
}
