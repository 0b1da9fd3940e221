//! PostgreSQL on the mount: a benchmark runs, the server is killed with SIGKILL, started again, and every table and index
//! is checked with pg_amcheck.

use super::script;
use crate::report::Report;
use crate::suites::{Ground, Suite};

/// Time beyond that of the step: making the database, the last check.
const MARGIN_SECS: u64 = 600;

/// The suite.
pub const SUITE: Suite = Suite { name: "postgres", about: "PostgreSQL, killed and checked", run };

fn run(ground: &Ground) -> Report {
    script(ground, "postgres", SCRIPT, MARGIN_SECS)
}

/// $1 is how many seconds.
const SCRIPT: &str = r#"
    bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
    sockets=$(mktemp -d) && chown postgres "$sockets"
    pg="$PWD/pg"
    as() { runuser -u postgres -- "$@"; }
    start() {
        # Children of a killed server may take a moment to notice.
        for try in 1 2 3 4 5 6 7 8 9 10; do
            as "$bin/pg_ctl" -D "$pg" -w -t 120 -l "$pg/server.log" start > /dev/null && return 0
            sleep 1
        done
        tail -n 50 "$pg/server.log"; return 1
    }
    stop() { as "$bin/pg_ctl" -D "$pg" -m immediate stop > /dev/null 2>&1 || true; rm -rf "$sockets"; }
    trap stop EXIT
    install -d -o postgres -m 700 "$pg"
    cd "$sockets"
    as "$bin/initdb" -D "$pg" --data-checksums > /dev/null
    printf "listen_addresses = ''\nunix_socket_directories = '$sockets'\nmax_wal_size = 256MB\n" >> "$pg/postgresql.conf"
    start
    as "$bin/createdb" -h "$sockets" bench
    as "$bin/pgbench" -h "$sockets" -q -i -s 5 bench
    end=$(( $(date +%s) + $1 )); kills=0
    while [ "$(date +%s)" -lt "$end" ]; do
        # Without -n it would begin with emptying the history, which the check below needs.
        as "$bin/pgbench" -h "$sockets" -n -c 4 -T 3600 bench > /dev/null 2>&1 & bench=$!
        sleep $(( 2 + kills % 7 ))
        kill -9 "$(head -n 1 "$pg/postmaster.pid")"
        wait "$bench" || true
        start
        as "$bin/pg_amcheck" -h "$sockets" --install-missing --heapallindexed --parent-check bench
        # A transaction changes an account, its teller and its branch by the same amount, or nothing.
        sums=$(as "$bin/psql" -h "$sockets" -At -c "select (select sum(abalance) from pgbench_accounts)
            = (select sum(bbalance) from pgbench_branches) and (select sum(bbalance) from pgbench_branches)
            = coalesce((select sum(delta) from pgbench_history), 0)" bench)
        test "$sums" = t
        kills=$(( kills + 1 ))
    done
    echo "$kills kills"
"#;
