//! Leases of directories: what callers are told, what is recalled before which change, what a restart does.

use brindle_types::{Code, FileType, Ino, SessionId};
use brindle_wire::Message;
use brindle_wire::Op;
use brindle_wire::cache_updates::CacheUpdates;
use brindle_wire::mds::create::CreateReq;
use brindle_wire::mds::getattr::GetattrReq;
use brindle_wire::mds::link::LinkReq;
use brindle_wire::mds::lookup::LookupReq;
use brindle_wire::mds::mkdir::MkdirReq;
use brindle_wire::mds::mknod::MknodReq;
use brindle_wire::mds::open::OpenReq;
use brindle_wire::mds::readdir::ReaddirReq;
use brindle_wire::mds::rename::RenameReq;
use brindle_wire::mds::session::{SessionOpenReq, SessionRenewReq};
use brindle_wire::mds::setattr::{SetTime, SetattrReq};
use brindle_wire::mds::symlink::SymlinkReq;
use brindle_wire::mds::unlink::{RmdirReq, UnlinkReq};
use brindle_wire::mds::xattr::SetxattrReq;

use futures_util::future::select;

use super::rig::*;
use crate::expire;
use crate::mdt::Event;
use crate::ops::session::handle_open;

const TOP: Ino = Ino::ROOT;

/// Asks as a session. Returns the outcome and the cache updates.
async fn told<M: Message>(
    rig: &Rig,
    session: SessionId,
    req: M,
) -> (brindle_types::Result<M::Resp>, CacheUpdates) {
    let call = rig.call::<M>(session);
    let outcome = rig.send(&call, &req).await;
    (outcome, call.take_cache_updates())
}

async fn look(rig: &Rig, session: SessionId, parent: Ino, name: &str) -> CacheUpdates {
    told(rig, session, LookupReq { parent, name: name.into() }).await.1
}

fn chmod(ino: Ino) -> SetattrReq {
    SetattrReq { mode: Some(0o600), ..setattr_req(ino, root()) }
}

/// The leases that were recalled so far.
fn recalls(rig: &Rig) -> Vec<(SessionId, Ino)> {
    let mut asked = rig.clients.asked.lock();
    asked.drain(..).filter(|(_, op, _)| *op == Op::LeaseNotice).map(|(s, _, ino)| (s, ino)).collect()
}

fn names(news: &CacheUpdates) -> Vec<Option<Ino>> {
    news.names.iter().map(|name| name.to.map(|(ino, _)| ino)).collect()
}

fn covers(news: &CacheUpdates) -> Vec<(Ino, Option<Ino>)> {
    news.inodes.iter().map(|inode| (inode.ino, inode.known.as_ref().map(|known| known.by))).collect()
}

#[test]
fn lookups_bring_leases_and_changes_bring_what_they_changed() {
    run(async {
        let rig = Rig::new().await;
        let news = look(&rig, A, TOP, "none").await;
        assert_eq!((news.leased[0].dir, names(&news)), (TOP, vec![None]), "a name that is not there");
        let (made, news) = told(&rig, A, create_req(TOP, "f", RW)).await;
        let file = made.expect("made").attr.ino;
        assert_eq!(names(&news), [Some(file)]);
        assert_eq!(covers(&news), [(TOP, Some(TOP)), (file, None)], "somebody writes it");
        assert!(news.inodes.iter().all(|inode| inode.at == news.names[0].at));
        let close = brindle_wire::mds::close::CloseReq::one(file, handle_of(&rig, file), None);
        let (_, news) = told(&rig, A, close).await;
        assert_eq!(covers(&news), [(file, Some(TOP))]);
        let (_, news) = told(&rig, B, chmod(file)).await;
        assert_eq!(covers(&news), [(file, None)], "it holds no lease");
        assert_eq!(recalls(&rig), [(A, TOP)]);
        let dir = rig.mkdir(TOP, "d").await.expect("made");
        let news = look(&rig, B, TOP, "d").await;
        assert!(
            news.leased.iter().any(|leased| leased.dir == dir.ino) && !news.leased.iter().any(|l| l.is_new)
        );
        rig.verify();
    });
}

/// The answers to two threads of one client may overtake each other. A thread that has a file open for
/// writing must not see attributes from before that open, whichever answer comes first.
#[test]
fn every_open_for_writing_tells_that_the_attributes_are_covered_no_more() {
    run(async {
        let rig = Rig::new().await;
        look(&rig, A, TOP, "f").await;
        let file = rig.create(A, TOP, "f", RW).await.expect("made").attr.ino;
        rig.close(A, file, handle_of(&rig, file)).await.expect("closed");
        assert_eq!(covers(&look(&rig, A, TOP, "f").await), [(file, Some(TOP))]);
        for opens in 1..4 {
            let open =
                OpenReq { ino: file, handle: 100 + opens, access: RW, cred: root(), kill_suidgid: false };
            let (opened, news) = told(&rig, A, open).await;
            opened.expect("opened");
            assert_eq!(covers(&news), [(file, None)], "open number {opens}");
        }
        let again = CreateReq { exclusive: false, handle: 200, ..create_req(TOP, "f", RW) };
        let (found, news) = told(&rig, A, again).await;
        assert!(!found.expect("found").created);
        assert!(covers(&news).contains(&(file, None)), "a create that finds it is an open");
        rig.verify();
    });
}

/// A thread is killed while it makes a directory, another one makes it again and is told that it is there.
/// The order of the answers is open, and a thread that was told that the directory exists must find it.
#[test]
fn a_change_of_names_that_is_refused_tells_where_they_lead() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        rig.create(B, dir, "in", RO).await.expect("made");
        let file = rig.create(B, TOP, "f", RO).await.expect("made").attr.ino;
        look(&rig, A, TOP, "f").await;
        let (parent, name, cred) = (TOP, || b"d".to_vec(), root());
        let mkdir = MkdirReq { parent, name: name(), mode: 0o755, umask: 0, cred: root() };
        refused(&rig, mkdir.clone(), Code::Exists, &[Some(dir)]).await;
        refused(&rig, create_req(TOP, "d", RW), Code::Exists, &[Some(dir)]).await;
        refused(&rig, create_req(TOP, "f", RW), Code::Exists, &[Some(file)]).await;
        let symlink = SymlinkReq { parent, name: name(), target: b"x".to_vec(), cred: root() };
        refused(&rig, symlink, Code::Exists, &[Some(dir)]).await;
        let link = LinkReq { ino: file, parent, name: name(), cred: root() };
        refused(&rig, link, Code::Exists, &[Some(dir)]).await;
        let kind = FileType::Fifo;
        let node = MknodReq { parent, name: name(), kind, mode: 0o644, umask: 0, rdev: 0, cred: root() };
        refused(&rig, node, Code::Exists, &[Some(dir)]).await;
        refused(&rig, UnlinkReq { parent, name: name(), cred: root() }, Code::IsDirectory, &[Some(dir)])
            .await;
        let none = || b"none".to_vec();
        refused(&rig, UnlinkReq { parent, name: none(), cred: root() }, Code::NotFound, &[None]).await;
        refused(&rig, RmdirReq { parent, name: none(), cred: root() }, Code::NotFound, &[None]).await;
        let rename = |no_replace| RenameReq {
            parent,
            name: if no_replace { b"f".to_vec() } else { none() },
            new_parent: parent,
            new_name: name(),
            no_replace,
            exchange: false,
            cred: root(),
            whiteout: false,
        };
        refused(&rig, rename(true), Code::Exists, &[Some(file), Some(dir)]).await;
        refused(&rig, rename(false), Code::NotFound, &[None, Some(dir)]).await;
        let news = refused(&rig, RmdirReq { parent, name: name(), cred }, Code::NotEmpty, &[Some(dir)]).await;
        // (Its own lease was taken back a moment ago.)
        assert_eq!(covers(&news), [(dir, Some(TOP))], "there is something in it");
        let found = CreateReq { exclusive: false, ..create_req(TOP, "f", RO) };
        let (found, news) = told(&rig, A, found).await;
        assert!(!found.expect("opened").created && names(&news) == [Some(file)]);
        let (_, news) = told(&rig, B, mkdir).await;
        assert_eq!(names(&news), [], "it holds no lease");
        rig.verify();
    });
}

/// The news of a request of A that is refused.
async fn refused<M: Message>(rig: &Rig, req: M, why: Code, leads: &[Option<Ino>]) -> CacheUpdates {
    let place = rig.mdt.engine().last_pos().index;
    let (outcome, news) = told(rig, A, req).await;
    assert_eq!(code(outcome), Some(why));
    assert_eq!(names(&news), leads, "{}", M::OP.name());
    assert!(news.names.iter().all(|name| name.at >= place));
    news
}

pub fn handle_of(rig: &Rig, ino: Ino) -> u64 {
    let handles = rig.mdt.live().opens.of_session(A);
    handles.iter().find(|(of, _)| *of == ino).expect("it is open").1
}

#[test]
fn a_change_waits_until_everybody_else_has_forgotten_and_its_own_caller_need_not() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        look(&rig, B, TOP, "d").await;
        look(&rig, B, dir, "x").await;
        rig.create(A, dir, "x", RO).await.expect("made");
        assert_eq!(recalls(&rig), [(B, dir)], "only of the directory that changed");
        rig.create(A, dir, "y", RO).await.expect("made");
        assert_eq!(recalls(&rig), [], "nobody has it any more");
        let news = look(&rig, B, dir, "x").await;
        assert_eq!((news.names.len(), news.leased.len()), (0, 0), "and it is contested for a while");
        rig.clients.silent.lock().push(B);
        look(&rig, A, dir, "x").await;
        rig.mdt.live_mut().leases.get_mut().forget_session(A);
        rig.create(A, TOP, "z", RO).await.expect("a silent client delays it by its lease");
        assert!(!rig.mdt.live().is_alive(B), "it held the root's");
        rig.verify();
    });
}

#[test]
fn the_rights_of_a_directory_that_several_change_are_covered_by_the_lease_of_its_parent() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        look(&rig, B, TOP, "d").await;
        look(&rig, A, TOP, "d").await;
        look(&rig, A, dir, "x").await;
        rig.create(B, dir, "x", RO).await.expect("made");
        assert_eq!(recalls(&rig), [(A, dir)], "what is in it has changed, not its rights");
        let by_name = look(&rig, A, TOP, "d").await;
        assert_eq!(covers(&by_name), [(dir, Some(TOP))]);
        assert!(by_name.inodes[0].known.as_ref().is_some_and(|known| known.is_rights_only()));
        let (_, by_number) = told(&rig, A, GetattrReq { ino: dir, report: None }).await;
        assert_eq!(covers(&by_number), [(dir, Some(TOP))]);
        let (made, news) = told(&rig, A, create_req(dir, "y", RO)).await;
        made.expect("made");
        assert_eq!(covers(&news)[0], (dir, Some(TOP)), "and behind a change of one's own");
        assert_eq!(recalls(&rig), [(B, dir)]);
        let touch = SetattrReq { mode: None, mtime: Some(SetTime::Now), ..chmod(dir) };
        told(&rig, B, touch).await.0.expect("changed");
        assert_eq!(recalls(&rig), [], "times are no rights");
        let (changed, news) = told(&rig, B, chmod(dir)).await;
        changed.expect("changed");
        assert_eq!(recalls(&rig), [(A, TOP)]);
        assert_eq!(covers(&news), [(dir, Some(TOP))], "it has the lease itself");
        let (_, after) = told(&rig, A, GetattrReq { ino: dir, report: None }).await;
        assert_eq!(covers(&after), [], "it holds no lease of the parent any more");
        told(&rig, B, GetattrReq { ino: TOP, report: None }).await.0.expect("seen");
        rig.verify();
    });
}

#[test]
fn the_rights_of_a_directory_are_taken_back_where_it_moves_and_whatever_of_them_changes() {
    run(async {
        let rig = Rig::new().await;
        let other = rig.mkdir(TOP, "other").await.expect("made").ino;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        for session in [A, B] {
            look(&rig, session, TOP, "d").await;
            look(&rig, session, dir, "x").await;
        }
        rig.create(B, dir, "x", RO).await.expect("made");
        assert_eq!(covers(&look(&rig, A, TOP, "d").await), [(dir, Some(TOP))]);
        recalls(&rig);
        let moved = RenameReq {
            parent: TOP,
            name: "d".into(),
            new_parent: other,
            new_name: "d".into(),
            no_replace: false,
            exchange: false,
            cred: root(),
            whiteout: false,
        };
        let (outcome, news) = told(&rig, B, moved).await;
        outcome.expect("moved");
        assert!(recalls(&rig).contains(&(A, TOP)), "its name was there");
        let of_dir: Vec<_> = covers(&news).into_iter().filter(|(ino, _)| *ino == dir).collect();
        assert_eq!(of_dir, [(dir, Some(dir))], "its own lease, or none");
        // Change each attribute that permissions depend on.
        look(&rig, A, other, "d").await;
        let xattr = |name: &str| SetxattrReq {
            ino: dir,
            name: name.into(),
            value: b"1".to_vec(),
            create: false,
            replace: false,
            kill_sgid: false,
            cred: root(),
        };
        let owner = |uid, gid| SetattrReq { mode: None, uid, gid, ..chmod(dir) };
        for change in [owner(Some(7), None), owner(None, Some(7)), chmod(dir)] {
            assert!(rig.mdt.live_mut().leases.get_mut().grant_now(other, A));
            told(&rig, B, change).await.0.expect("changed");
            assert!(recalls(&rig).contains(&(A, other)));
        }
        assert!(rig.mdt.live_mut().leases.get_mut().grant_now(other, A));
        told(&rig, B, xattr("user.first")).await.0.expect("set");
        assert!(recalls(&rig).contains(&(A, other)), "now there is one");
        assert!(rig.mdt.live_mut().leases.get_mut().grant_now(other, A));
        told(&rig, B, xattr("user.second")).await.0.expect("set");
        assert!(!recalls(&rig).contains(&(A, other)), "there was one before");
        rig.verify();
    });
}

#[test]
fn a_client_that_has_come_by_another_connection_is_asked_again_there() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        look(&rig, B, dir, "x").await;
        rig.clients.cut_off.lock().push(B);
        let coming = async {
            while rig.mdt.waits().list().is_empty() {
                tokio::task::yield_now().await;
            }
            rig.clients.cut_off.lock().clear();
            rig.mdt.live_mut().events.fire(Event::Session(B));
        };
        let (made, ()) = tokio::join!(rig.create(A, dir, "x", RO), coming);
        made.expect("made");
        assert!(rig.mdt.live().is_alive(B), "it has answered in time");
        assert_eq!(recalls(&rig), [(B, dir)]);
        rig.verify();
    });
}

/// The writer is told of the attribute epoch that its open was too early for: reports under the old one move
/// no times.
#[test]
fn who_opens_a_file_for_writing_while_its_times_are_about_to_be_set_is_told_of_that() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        let ino = rig.create(A, dir, "f", RO).await.expect("made").attr.ino;
        rig.close(A, ino, handle_of(&rig, ino)).await.expect("closed");
        rig.mdt.live_mut().leases.get_mut().forget_session(A);
        look(&rig, B, dir, "f").await;
        assert!(rig.mdt.live().leases.lock().holds(dir, B));
        rig.clients.take_asked();
        rig.clients.cut_off.lock().push(B);
        let touch = SetattrReq { mode: None, mtime: Some(SetTime::Now), ..chmod(ino) };
        let opening = async {
            // The lease is being recalled, and its holder needs to ask nobody.
            while rig.mdt.waits().list().is_empty() {
                tokio::task::yield_now().await;
            }
            let open = OpenReq { ino, handle: 7, access: WO, cred: root(), kill_suidgid: false };
            rig.ask(B, open).await.expect("opened");
            rig.clients.cut_off.lock().clear();
            rig.mdt.live_mut().events.fire(Event::Session(B));
        };
        let (touched, ()) = tokio::join!(rig.ask(A, touch), opening);
        touched.expect("set");
        assert_eq!(rig.clients.take_asked(), [(B, Op::LeaseNotice, dir), (B, Op::ReportNotice, ino)]);
        rig.verify();
    });
}

#[test]
fn who_does_not_answer_but_renews_its_lease_is_ended_when_that_is_over() {
    run(async {
        let rig = Rig::new().await;
        let now = || rig.mdt.seams().now();
        look(&rig, B, TOP, "d").await;
        rig.clients.cut_off.lock().push(B);
        let changing = async {
            rig.mkdir(TOP, "d").await.expect("made");
            now()
        };
        let renewing = async {
            let mut last = now();
            loop {
                let sent = now();
                match rig.ask(B, SessionRenewReq {}).await {
                    Ok(_) => last = sent,
                    Err(_) => return last,
                }
                rig.mdt.seams().sleep_ms(5).await;
            }
        };
        let (changed, renewed) = tokio::join!(changing, renewing);
        let lease_ms = u64::from(rig.mdt.config().lease_ms);
        let since_ms = changed.ms_since(renewed);
        assert!(
            since_ms >= lease_ms,
            "after {since_ms} ms it may still have said that there is no such name"
        );
        rig.verify();
    });
}

#[test]
fn who_is_being_ended_is_not_resumed_and_need_not_be_waited_for_once_it_begins_again() {
    run(async {
        let rig = Rig::new().await;
        let request = |resume| {
            let (host, mount) = ("cn1".to_owned(), "/mnt".to_owned());
            SessionOpenReq { client_uuid: [B.0 as u8; 16], host, mount, resume }
        };
        // The lease of the client counts for a minute.
        let later = rig.mdt.seams().now().plus_ms(60_000);
        rig.mdt.live_mut().sessions.get_mut(&B).expect("lives").renewed = later;
        let ended = rig.mdt.seams().timeout_ms(20, expire::end(&rig.mdt, B, "a test")).await;
        assert!(ended.is_none() && rig.mdt.live().is_alive(B), "its client may still answer from its memory");
        assert_eq!(code(rig.ask(B, SessionRenewReq {}).await), Some(Code::StaleSession));
        assert_eq!(
            code(handle_open(&rig.mdt, request(true), "cn1", |_| false).await),
            Some(Code::StaleSession)
        );
        rig.mdt.live_mut().ending.clear();
        let ending = expire::end(&rig.mdt, B, "a test");
        let (_, again) = tokio::join!(ending, handle_open(&rig.mdt, request(false), "cn1", |_| false));
        assert!(again.expect("begun again").epoch > EPOCH);
        rig.ask(A, SessionRenewReq {}).await.expect("renewed");
        rig.verify();
    });
}

#[test]
fn who_waits_for_an_end_is_not_let_on_because_the_client_connects_again() {
    run(async {
        let rig = Rig::new().await;
        let later = rig.mdt.seams().now().plus_ms(60_000);
        rig.mdt.live_mut().sessions.get_mut(&B).expect("lives").renewed = later;
        let first = Box::pin(expire::end(&rig.mdt, B, "a test"));
        let second = Box::pin(expire::end(&rig.mdt, B, "another question"));
        let connects = Box::pin(async {
            rig.mdt.seams().sleep_ms(5).await;
            rig.mdt.live_mut().events.fire(Event::Session(B));
            std::future::pending::<()>().await;
        });
        let any = select(select(first, second), connects);
        assert!(rig.mdt.seams().timeout_ms(30, any).await.is_none(), "its lease still counts");
    });
}

#[test]
fn what_somebody_writes_is_covered_by_no_lease_and_costs_no_recall() {
    run(async {
        let rig = Rig::new().await;
        let dir = rig.mkdir(TOP, "d").await.expect("made").ino;
        let made = rig.create(A, dir, "f", RW).await.expect("made");
        let file = made.attr.ino;
        let news = look(&rig, B, dir, "f").await;
        assert_eq!((names(&news), covers(&news)), (vec![Some(file)], vec![]), "its name, not its size");
        told(&rig, A, chmod(file)).await.0.expect("changed");
        assert_eq!(recalls(&rig), []);
        let page = ReaddirReq { ino: dir, after: 0, entries_max: 10, plus: true };
        let listed = rig.ask(B, page).await.expect("listed").entries;
        assert_eq!((listed[0].kind, &listed[0].attr), (FileType::Regular, &None));
        let handle = handle_of(&rig, file);
        rig.close(A, file, handle).await.expect("closed");
        assert_eq!(recalls(&rig), [], "nobody knew it");
        rig.verify();
    });
}

#[test]
fn creates_that_wait_for_leases_leave_no_ost_out() {
    run(async {
        let rig = Rig::new().await;
        let mut chosen = Vec::new();
        for n in 0..12 {
            let (maker, holder) = if n % 2 == 0 { (A, B) } else { (B, A) };
            let name = format!("f{n}");
            look(&rig, holder, TOP, &name).await;
            let made = rig.create(maker, TOP, &name, RO).await.expect("made");
            chosen.push(made.grant.layout.components[0].osts[0]);
        }
        assert!(!recalls(&rig).is_empty(), "a create had to wait");
        assert_eq!(chosen, [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]);
        // Nor do creates that fail.
        rig.create(A, TOP, "f0", RO).await.expect_err("it is there");
        let made = rig.create(A, TOP, "g", RO).await.expect("made");
        assert_eq!(made.grant.layout.components[0].osts, [0]);
        rig.verify();
    });
}

#[test]
fn after_a_restart_nothing_that_may_be_covered_changes_before_clients_have_declared_themselves() {
    run(async {
        let mut rig = Rig::new().await;
        let file = rig.create(A, TOP, "f", RO).await.expect("made").attr.ino;
        look(&rig, B, TOP, "f").await;
        rig.restart().await;
        rig.mdt.live_mut().recovering = true;
        let news = look(&rig, A, TOP, "f").await;
        assert!(news.is_empty(), "no leases yet");
        let changing = told(&rig, A, chmod(file));
        let ending = async {
            while rig.mdt.waits().list().is_empty() {
                tokio::task::yield_now().await;
            }
            let mut live = rig.mdt.live_mut();
            live.recovering = false;
            live.events.fire(Event::Recovered);
        };
        let ((changed, _), ()) = tokio::join!(changing, ending);
        changed.expect("changed");
        rig.verify();
    });
}

#[test]
fn a_session_goes_on_under_the_new_name_of_its_host_and_is_no_other_hosts() {
    run(async {
        let rig = Rig::new().await;
        let request = SessionOpenReq {
            client_uuid: [B.0 as u8; 16],
            host: "cn9".to_owned(),
            mount: "/mnt".to_owned(),
            resume: true,
        };
        let host = || rig.mdt.live().sessions[&B].row.host.clone();
        let former = host();
        let refused = handle_open(&rig.mdt, request.clone(), "cn9", |_| false).await;
        assert_eq!((code(refused), host()), (Some(Code::NotForCaller), former.clone()));
        let resumed =
            handle_open(&rig.mdt, request.clone(), "cn9", |name| name == former).await.expect("resumed");
        assert_eq!((resumed.session, host()), (B, "cn9".to_owned()));
        let former_now = handle_open(&rig.mdt, request, &former, |_| false).await;
        assert_eq!(code(former_now), Some(Code::NotForCaller), "its former name is another host's");
        rig.verify();
    });
}
