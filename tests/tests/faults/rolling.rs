//! All hosts of a cluster start anew one after the other, as after an upgrade, and no program sees an error. Before, the cluster is written
//! to a file, copies included; afterwards it is as the file says.

use std::fs;

use brindle_tests::cluster::Cluster;
use brindle_tests::{bytes, same_bytes};

use crate::bare_hosts::{said, until};
use crate::dice::seed;
use crate::enrolment::{brindle, done, end, join, mount, serve};
use crate::work::Work;

#[test]
fn all_hosts_start_anew_one_after_the_other_under_load() {
    seed("rolling");
    let cluster = Cluster::up_bare("rolling", 4);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    done(&cluster, "h1", "target add --mdt --node h1 --dir /var/lib/brindle/mdt0");
    done(&cluster, "h1", "target add --node h2 --dir /var/lib/brindle/ost0");
    // The second OST comes from a file.
    done(&cluster, "h1", "cluster export > /run/brindle/c.toml");
    let copies = "[[target]]\nname = \"OST0001\"\nhost = \"h2\"\ndir = \"/var/lib/brindle/ost1\"\n\
                  [[target.copy]]\nhost = \"h3\"\ndir = \"/var/lib/brindle/ost1\"\n";
    said(&cluster, "h1", &format!("printf '{copies}' >> /run/brindle/c.toml"));
    let added = done(&cluster, "h1", "cluster apply /run/brindle/c.toml");
    assert!(added.ends_with("scratch-OST0001: serving on h2"), "{added}");
    let listed = done(&cluster, "h1", "node list");
    assert!(listed.contains("scratch-OST0001 (copy)"), "{listed}");
    let refused = brindle(&cluster, "h1", "target stop OST0001");
    assert!(!refused.ok() && refused.text.contains("it has copies on several hosts"), "{refused}");
    assert!(join(&cluster, "h4", "client").ok());
    mount(&cluster, "h4");
    let work = Work::begin(&cluster, "h4");
    let pids = || ["h1", "h2", "h3"].map(|host| said(&cluster, host, "pgrep -x brindle"));
    let before = pids();
    let planned = done(&cluster, "h1", "cluster restart --rolling --dry-run");
    assert!(planned.ends_with("h3, h2, h1") || planned.ends_with("h2, h3, h1"), "{planned}");
    let restarted = done(&cluster, "h1", "cluster restart --rolling");
    for host in ["h1", "h2", "h3"] {
        assert!(restarted.contains(&format!("{host}: serves again")), "{restarted}");
        let log = said(&cluster, host, "grep -c 'brindle serve starts' /var/lib/brindle/serve.log");
        assert_eq!(log, "2", "{host}");
        // The last line before the program is replaced.
        let stopped = said(&cluster, host, "grep -c 'msg=stopped$' /var/lib/brindle/serve.log");
        assert_eq!(stopped, "1", "{host}");
    }
    assert_eq!(pids(), before, "whoever supervises them sees the same processes");
    work.goes_on();
    done(&cluster, "h1", "cluster export > /run/brindle/c.toml");
    let same = done(&cluster, "h1", "cluster apply /run/brindle/c.toml");
    assert_eq!(same, "nothing to change: the cluster is as the file says");
    work.end(&cluster);
    end(cluster, daemons);
}

#[test]
fn a_development_cluster_with_copies_boots_with_what_is_installed_on_it() {
    seed("copies");
    let cluster = Cluster::up_with_copies("copies", 3);
    let are = |wanted: &str| {
        let listed = brindle(&cluster, "h1", "target replica list -o json").stdout;
        let sets = serde_json::Deserializer::from_str(&listed).into_iter::<serde_json::Value>().flatten();
        sets.filter(|set| set["state"] == wanted).count() == 3
    };
    until("the MDT and both OSTs being served", || are("serving"));
    let file = cluster.dir().join("mnt/h4/f");
    let data = bytes(1, 3 << 20);
    fs::write(&file, &data).unwrap();
    assert!(cluster.dev(&["host", "kill", "h2"]).ok());
    same_bytes(&fs::read(&file).unwrap(), &data, "from the copy");
    fs::write(&file, &data[1..]).unwrap();
    assert!(cluster.dev(&["host", "start", "h2"]).ok());
    until("all of them being complete again", || are("serving"));
    let down = cluster.dev(&["down"]);
    assert!(down.ok(), "{down}");
    // The installed cluster is started again.
    let up = cluster.dev(&["up"]);
    assert!(up.ok(), "{up}");
    same_bytes(&fs::read(&file).unwrap(), &data[1..], "after a boot of everything");
    let refused = cluster.dev(&["up", "--hosts=2", "--copies=2"]);
    assert!(!refused.ok(), "{refused}");
    cluster.down();
}
