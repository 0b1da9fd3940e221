"""Bank transfers by several processes on one SQLite file in the current directory: MODE WRITERS SECONDS SEED.

Each writer moves money between accounts and counts what was acknowledged; one more writer is killed inside a
transaction. At the end: integrity_check, the sum of all accounts, and every acknowledged transfer is in the table.
"""
import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import time

MODE, WRITERS, SECONDS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
NAME = f"bank-{MODE}.db"
ACCOUNTS, EACH = 200, 1000
BUSY_SECONDS = 30


def connect():
    db = sqlite3.connect(NAME, timeout=BUSY_SECONDS, isolation_level=None)
    found = db.execute(f"PRAGMA journal_mode={MODE}").fetchone()[0]
    assert found == MODE, f"asked for journal mode {MODE}, got {found}"
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("PRAGMA cache_size=20")  # few pages, so that transactions spill
    return db


def transfer(db, rng, writer):
    a, b = rng.randrange(ACCOUNTS), rng.randrange(ACCOUNTS)
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE account SET money = money - 1 WHERE id = ?", (a,))
    db.execute("UPDATE account SET money = money + 1 WHERE id = ?", (b,))
    db.execute("INSERT INTO done VALUES (?, ?)", (writer, os.urandom(rng.randrange(2000))))
    db.execute("COMMIT")


def check_sum(db):
    total = db.execute("SELECT sum(money) FROM account").fetchone()[0]
    assert total == ACCOUNTS * EACH, f"the accounts hold {total}, not {ACCOUNTS * EACH}"


def work(writer, counts):
    db, rng = connect(), random.Random(SEED + writer)
    until, count = time.monotonic() + SECONDS, 0
    while time.monotonic() < until:
        transfer(db, rng, writer)
        count += 1
        if count % 16 == 0:
            check_sum(db)
    counts.put((writer, count))
    db.close()


def be_killed(ready):
    db = connect()
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE account SET money = 0")
    db.executemany("INSERT INTO done VALUES (99, ?)", [(os.urandom(4000),) for _ in range(50)])
    ready.set()
    signal.pause()


def main():
    db = connect()
    db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, money INTEGER)")
    db.execute("CREATE TABLE done (writer INTEGER, blob BLOB)")
    db.execute("BEGIN")
    db.executemany("INSERT INTO account VALUES (?, ?)", [(i, EACH) for i in range(ACCOUNTS)])
    db.execute("COMMIT")
    db.close()

    spawn = multiprocessing.get_context("fork")
    ready, counts = spawn.Event(), spawn.Queue()
    victim = spawn.Process(target=be_killed, args=(ready,))
    victim.start()
    assert ready.wait(BUSY_SECONDS), "the writer that is to be killed never got its transaction"
    writers = [spawn.Process(target=work, args=(n, counts)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    os.kill(victim.pid, signal.SIGKILL)
    done = dict(counts.get(timeout=SECONDS + 2 * BUSY_SECONDS) for _ in writers)
    for process in [victim, *writers]:
        process.join()
    assert all(writer.exitcode == 0 for writer in writers), [writer.exitcode for writer in writers]

    db = connect()
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check_sum(db)
    found = dict(db.execute("SELECT writer, count(*) FROM done GROUP BY writer"))
    assert found == done, f"acknowledged {done}, found {found}"
    assert min(done.values()) > 0, f"a writer starved: {done}"
    print(f"{MODE}: {sum(done.values())} transfers by {WRITERS} writers: {done}")


main()
