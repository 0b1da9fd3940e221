//! Places of files in a package.

/// Ordinary files of the repository: from, to, permissions.
pub const FILES: &[(&str, &str, u32)] = &[
    ("deploy/pam.d/brindle", "etc/pam.d/brindle", 0o644),
    ("deploy/systemd/brindle-serve.service", "usr/lib/systemd/system/brindle-serve.service", 0o644),
    ("deploy/systemd/brindle-bb.service", "usr/lib/systemd/system/brindle-bb.service", 0o644),
    ("deploy/systemd/brindle-bb-agent.service", "usr/lib/systemd/system/brindle-bb-agent.service", 0o644),
    ("deploy/systemd/scratch.mount", "usr/share/doc/brindle/examples/scratch.mount", 0o644),
    ("deploy/prometheus/brindle.yml", "usr/share/doc/brindle/examples/prometheus/brindle.yml", 0o644),
    (
        "deploy/prometheus/brindle-alerts.yml",
        "usr/share/doc/brindle/examples/prometheus/brindle-alerts.yml",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/clients.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/clients.json",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/metadata.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/metadata.json",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/overview.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/overview.json",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/servers.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/servers.json",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/targets.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/targets.json",
        0o644,
    ),
    (
        "deploy/prometheus/grafana/tiering.json",
        "usr/share/doc/brindle/examples/prometheus/grafana/tiering.json",
        0o644,
    ),
    ("docs/reference/serve.toml", "usr/share/doc/brindle/reference/serve.toml", 0o644),
    ("docs/reference/completions/brindle.bash", "usr/share/bash-completion/completions/brindle", 0o644),
    ("docs/reference/completions/_brindle", "usr/share/zsh/vendor-completions/_brindle", 0o644),
    ("docs/reference/completions/brindle.fish", "usr/share/fish/vendor_completions.d/brindle.fish", 0o644),
    ("deploy/debian/copyright", "usr/share/doc/brindle/copyright", 0o644),
    ("deploy/debian/lintian-overrides", "usr/share/lintian/overrides/brindle", 0o644),
];

/// Files that an administrator may have changed: an upgrade keeps what is there.
pub const CONFIGURATION: &[&str] = &["etc/pam.d/brindle"];

/// Files that are compressed, as Debian wants it: from, to without `.gz`.
pub const COMPRESSED: &[(&str, &str)] = &[("CHANGELOG.md", "usr/share/doc/brindle/NEWS.md")];

/// Directories of which every page goes: from, to. The pages link to each other.
pub const PAGES: &[(&str, &str)] = &[
    ("docs", "usr/share/doc/brindle"),
    ("docs/operations", "usr/share/doc/brindle/operations"),
    ("docs/design", "usr/share/doc/brindle/design"),
    ("docs/reference", "usr/share/doc/brindle/reference"),
];

/// The man pages, and where they go, compressed.
pub const MAN: (&str, &str) = ("docs/reference/man", "usr/share/man/man1");

/// Links: name, what it leads to.
pub const LINKS: &[(&str, &str)] = &[
    ("usr/bin/lfs", "brindle"),
    ("usr/sbin/lctl", "../bin/brindle"),
    ("usr/sbin/lhsmtool_posix", "../bin/brindle"),
    ("usr/sbin/rbh-report", "../bin/brindle"),
    ("usr/bin/rbh-find", "brindle"),
    ("usr/bin/rbh-du", "brindle"),
    ("usr/sbin/mount.brindle", "../bin/brindle"),
    ("usr/sbin/mount.fuse.brindle", "../bin/brindle"),
    ("usr/share/bash-completion/completions/lfs", "brindle"),
    ("usr/share/bash-completion/completions/lctl", "brindle"),
    ("usr/share/man/man1/lfs.1.gz", "brindle-lfs.1.gz"),
    ("usr/share/man/man8/lctl.8.gz", "../man1/brindle-lctl.1.gz"),
    ("usr/share/man/man8/mount.brindle.8.gz", "../man1/brindle-mount.1.gz"),
    ("usr/share/man/man8/mount.fuse.brindle.8.gz", "../man1/brindle-mount.1.gz"),
];

/// Directories of a host that are there from the beginning, and their permissions.
pub const DIRS: &[(&str, u32)] = &[("etc/brindle", 0o755), ("var/lib/brindle", 0o755)];

/// The binary.
pub const BINARY: &str = "usr/bin/brindle";

/// Scripts that dpkg runs, in `deploy/debian`.
pub const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
