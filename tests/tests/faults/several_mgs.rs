//! Several hosts that run the MGS, with the configuration in etcd. When the active MGS dies or hangs another one becomes active, no program
//! sees an error, and the cluster can be changed again.

use std::process::Child;

use brindle_tests::cluster::Cluster;

use crate::bare_hosts::{said, start, until};
use crate::dice::seed;
use crate::enrolment::{MOUNT, brindle, done, end, join, mount, serve};

/// Runs a member of etcd on each of the hosts.
fn etcd(cluster: &Cluster, hosts: &[&str]) -> Vec<Child> {
    let members: Vec<String> = hosts.iter().map(|host| format!("{host}=http://{host}:2380")).collect();
    let run = |host: &&str| {
        let script = format!(
            "exec etcd --name {host} --data-dir /var/lib/brindle/etcd --listen-client-urls http://0.0.0.0:2379 \
             --advertise-client-urls http://{host}:2379 --listen-peer-urls http://0.0.0.0:2380 \
             --initial-advertise-peer-urls http://{host}:2380 --initial-cluster {} --initial-cluster-state new \
             2>/var/lib/brindle/etcd.log",
            members.join(",")
        );
        start(cluster, host, &script)
    };
    let children = hosts.iter().map(run).collect();
    let health = "etcdctl --command-timeout=1s endpoint health";
    let asks = format!("{health} || curl -sf http://127.0.0.1:2379/health | grep -q true");
    for host in hosts {
        until("etcd", || crate::bare_hosts::sh(cluster, host, &asks).ok());
    }
    children
}

/// The host whose MGS is active, as a host sees it.
fn active(cluster: &Cluster, from: &str) -> String {
    let listed = brindle(cluster, from, "target list -o json");
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    let targets = listed["targets"].as_array().cloned().unwrap_or_default();
    let mgt = targets.iter().find(|target| target["name"] == "scratch-MGT0000");
    mgt.and_then(|target| target["host"].as_str()).unwrap_or_default().to_owned()
}

#[test]
fn another_mgs_is_active_when_the_host_of_the_first_dies_or_hangs() {
    seed("several-mgs");
    let cluster = Cluster::up_bare("several-mgs", 5);
    let mut others = etcd(&cluster, &["h1", "h2", "h3"]);
    let refused = brindle(&cluster, "h1", "cluster init --fs scratch --config etcd://h9");
    assert!(!refused.ok() && refused.text.contains("E5018"), "{refused}");
    done(&cluster, "h1", "cluster init --fs scratch --config etcd://h1,h2,h3");
    let twice = brindle(&cluster, "h3", "cluster init --fs scratch --config etcd://h1,h2,h3");
    assert!(!twice.ok() && twice.text.contains("E5020"), "{twice}");
    let mut daemons = vec![serve(&cluster, "h1")];
    for host in ["h2", "h3"] {
        assert!(join(&cluster, host, "server").ok());
        daemons.push(serve(&cluster, host));
    }
    let stranger = brindle(&cluster, "h1", "target add --mgt --node h9 --dir /var/lib/brindle/mgt");
    assert!(!stranger.ok() && stranger.text.contains("h9"), "{stranger}");
    let added = done(&cluster, "h1", "target add --mgt --node h2 --dir /var/lib/brindle/mgt");
    assert!(added.ends_with("serving on h2"), "{added}");
    let again = brindle(&cluster, "h1", "target add --mgt --node h2 --dir /var/lib/brindle/mgt2");
    assert!(!again.ok() && again.text.contains("it runs it already"), "{again}");
    let secrets = said(&cluster, "h2", "cd /var/lib/brindle/mgt && stat -c %a . authority.pem etcd.toml");
    assert_eq!(secrets, "700\n600\n600");
    done(&cluster, "h1", "target add --mdt --node h3 --dir /var/lib/brindle/mdt0");
    done(&cluster, "h1", "target add --node h3 --dir /var/lib/brindle/ost0");
    for (host, role) in [("h4", "client"), ("h5", "admin")] {
        assert!(join(&cluster, host, role).ok());
    }
    mount(&cluster, "h4");
    let knows =
        |host: &str| said(&cluster, host, "cat /etc/brindle/cluster.toml").matches(":9880").count() == 2;
    for host in ["h1", "h2", "h3"] {
        until("both addresses on file", || knows(host));
    }
    let work = start(
        &cluster,
        "h4",
        &format!(
            "cd {MOUNT} && n=0; while ! test -e stop; do echo $n > f$n && cat f$n >/dev/null && rm f$n || exit 1; n=$((n+1)); done"
        ),
    );
    // Dead, with its member of etcd.
    assert!(cluster.dev(&["host", "kill", "h1"]).ok());
    daemons.remove(0).wait().unwrap();
    others.remove(0).wait().unwrap();
    until("h2 being active", || active(&cluster, "h5") == "h2");
    // A change, with the authority: a token and a host that joins. h2 has never asked h1 for it since.
    done(&cluster, "h5", "cluster token --role client");
    done(&cluster, "h5", "target stop OST0000");
    done(&cluster, "h5", "target start OST0000");
    // The host comes back, and stands by.
    assert!(cluster.dev(&["host", "start", "h1"]).ok());
    others.push(etcd_again(&cluster, "h1"));
    daemons.push(start_daemon(&cluster, "h1"));
    until("h1 standing by", || said(&cluster, "h1", "cat /var/lib/brindle/serve.log").contains("stands by"));
    assert_eq!(active(&cluster, "h5"), "h2");
    // Hung.
    assert!(cluster.dev(&["host", "freeze", "h2"]).ok());
    until("h1 being active", || active(&cluster, "h5") == "h1");
    done(&cluster, "h5", "cluster token --role client");
    assert!(cluster.dev(&["host", "thaw", "h2"]).ok());
    until("h2 knowing", || {
        said(&cluster, "h2", "cat /var/lib/brindle/serve.log").contains("not the active one")
    });
    assert_eq!(active(&cluster, "h5"), "h1");
    finish(&cluster, work);
    others.extend(daemons);
    end(cluster, others);
}

fn finish(cluster: &Cluster, mut work: Child) {
    said(cluster, "h4", &format!("touch {MOUNT}/stop"));
    assert!(work.wait().unwrap().success(), "a program saw an error");
}

fn etcd_again(cluster: &Cluster, host: &str) -> Child {
    let script = format!(
        "exec etcd --name {host} --data-dir /var/lib/brindle/etcd --listen-client-urls http://0.0.0.0:2379 \
         --advertise-client-urls http://{host}:2379 --listen-peer-urls http://0.0.0.0:2380 2>/var/lib/brindle/etcd.log"
    );
    start(cluster, host, &script)
}

fn start_daemon(cluster: &Cluster, host: &str) -> Child {
    let brindle = brindle_tests::cluster::binary();
    start(cluster, host, &format!("exec '{}' serve --log /var/lib/brindle/serve.log", brindle.display()))
}

#[test]
fn the_configuration_of_a_cluster_that_runs_is_moved_to_etcd() {
    seed("move-config");
    let cluster = Cluster::up_bare("move-config", 2);
    let others = etcd(&cluster, &["h2"]);
    done(&cluster, "h1", "cluster init --fs scratch");
    let mut daemon = serve(&cluster, "h1");
    assert!(join(&cluster, "h2", "server").ok());
    let add = "target add --mgt --node h2 --dir /var/lib/brindle/mgt";
    let refused = brindle(&cluster, "h1", add);
    assert!(!refused.ok() && refused.text.contains("cluster move-config"), "{refused}");
    let busy = brindle(&cluster, "h1", "cluster move-config --to etcd://h2");
    assert!(!busy.ok() && busy.text.contains("it is locked by process"), "{busy}");
    said(&cluster, "h1", "pkill -TERM -f 'brindle serv[e]'");
    daemon.wait().unwrap();
    done(&cluster, "h1", "cluster move-config --to etcd://h2");
    let twice = brindle(&cluster, "h1", "cluster move-config --to etcd://h2");
    assert!(!twice.ok() && twice.text.contains("in etcd already"), "{twice}");
    let mut daemons = vec![serve(&cluster, "h1"), serve(&cluster, "h2")];
    let added = done(&cluster, "h1", add);
    assert!(added.ends_with("serving on h2"), "{added}");
    // A planned stop hands over at once.
    said(&cluster, "h1", "pkill -TERM -f 'brindle serv[e]'");
    daemons.remove(0).wait().unwrap();
    daemons.extend(others);
    until("h2 being active", || {
        said(&cluster, "h2", "cat /var/lib/brindle/serve.log").contains("this MGS is the active one")
    });
    end(cluster, daemons);
}

#[test]
fn hosts_that_run_the_mgs_get_other_names_while_they_are_the_active_one() {
    seed("renamed-mgs");
    let cluster = Cluster::up_bare("renamed-mgs", 3);
    let mut children = etcd(&cluster, &["h3"]);
    done(&cluster, "h1", "cluster init --fs scratch --config etcd://h3");
    children.push(serve(&cluster, "h1"));
    assert!(join(&cluster, "h2", "server").ok());
    children.push(serve(&cluster, "h2"));
    done(&cluster, "h1", "target add --mgt --node h2 --dir /var/lib/brindle/mgt");
    assert!(join(&cluster, "h3", "admin").ok());
    until("h1 being active", || active(&cluster, "h3") == "h1");
    // The other one goes on meanwhile.
    for (from, to, next) in [("h1", "alpha", "h2"), ("h2", "beta", "alpha")] {
        let renamed = done(&cluster, "h3", &format!("node rename {from} {to}"));
        assert!(renamed.contains(&format!("renamed {from} to {to}: its daemon goes by it")), "{renamed}");
        until("the other one being active", || active(&cluster, "h3") == next);
        let listed = done(&cluster, "h3", "node list");
        assert!(listed.contains(to) && !listed.contains(&format!("{from} ")), "{listed}");
        done(&cluster, "h3", "cluster token --role client");
    }
    let targets = done(&cluster, "h3", "target list -o json");
    assert!(!targets.contains("\"h1\"") && !targets.contains("\"h2\""), "{targets}");
    end(cluster, children);
}
