//! The service over real connections: what one server registers, others see, also over a restart.

use brindle_net::peer::NoNotifies;
use brindle_net::{Peer, PeerConfig, TcpTransport, Transport};
use brindle_types::Role;
use brindle_wire::Message;
use brindle_wire::form::FormatLevel;
use brindle_wire::frame::{Header, decode_reply, encode_body};
use brindle_wire::map::TargetState;
use brindle_wire::map::delta::MapUpdate;
use brindle_wire::mds::session::TargetInfoReq;
use brindle_wire::mgs::{GetMapReq, HeartbeatReq, RegisterReq, RegisterResp};
use brindle_wire::version::PeerKind;

use super::*;
use crate::testing::run;

struct World {
    dir: tempfile::TempDir,
    seams: Seams,
    transport: Arc<dyn Transport>,
}

impl World {
    async fn new() -> World {
        let seams = brindle_stdx::real::seams(tokio::runtime::Handle::current());
        let transport = Arc::new(TcpTransport::new(seams.clone()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        format(seams.disk.clone(), &*seams.rng, seams.wall(), path, "scratch".parse().unwrap())
            .await
            .unwrap();
        World { dir, seams, transport }
    }

    fn config(&self) -> Config {
        let listen = "127.0.0.1:0".parse().unwrap();
        Config::new(self.dir.path().to_str().unwrap(), listen, "mgs1")
    }

    async fn start(&self, config: Config) -> Handle {
        start(config, self.seams.clone(), self.transport.clone()).await.unwrap()
    }

    fn peer(&self, handle: &Handle, fs_id: u64) -> Arc<Peer> {
        let serves = Some(TargetId::ost(0));
        let config = PeerConfig { serves, ..PeerConfig::new(fs_id, PeerKind::Server, "oss1") };
        let nids = vec![handle.local_nid().clone()];
        Peer::new(self.transport.clone(), self.seams.clone(), nids, config, Arc::new(NoNotifies))
    }
}

async fn call<M: Message>(peer: &Peer, req: &M) -> Result<M::Resp> {
    let header = Header { op: M::OP as u16, target: Some(TargetId::MGT), ..Header::default() };
    decode_reply(&peer.call(Frame::new(header, encode_body(req))).await?)
}

fn register_req(index: u16, port: u16) -> RegisterReq {
    RegisterReq {
        fs: "scratch".parse().unwrap(),
        fs_id: 0,
        target: TargetId::ost(index),
        uuid: [index as u8 + 1; 16],
        nids: vec![format!("10.0.0.1:{port}").parse().unwrap()],
        host: "oss1".into(),
        format_level_max: FormatLevel::NEWEST,
    }
}

fn get_map(known_version: u64, wait_ms: u32) -> GetMapReq {
    GetMapReq { fs: "scratch".parse().unwrap(), known_version, wait_ms }
}

fn whole(update: Option<MapUpdate>) -> Map {
    match update {
        Some(MapUpdate::Whole(map)) => map,
        other => panic!("all of the map, to whoever has none: {other:?}"),
    }
}

#[test]
fn a_waiting_client_hears_of_a_new_target_and_a_restart_forgets_nothing() {
    run(async {
        let world = World::new().await;
        let handle = world.start(world.config()).await;
        let peer = world.peer(&handle, 0);
        let map = whole(call(&peer, &get_map(0, 0)).await.unwrap().update);
        assert_eq!(map.targets.iter().map(|t| t.id.role).collect::<Vec<_>>(), [Role::Mgt]);
        let waiting = {
            let peer = peer.clone();
            tokio::spawn(async move { call(&peer, &get_map(map.version, 30_000)).await })
        };
        let RegisterResp { epoch, map: after, .. } = call(&peer, &register_req(0, 1)).await.unwrap();
        assert_eq!(epoch, 1);
        let update = waiting.await.unwrap().unwrap().update.expect("newer");
        assert!(
            matches!(&update, MapUpdate::Delta(delta) if delta.changes.len() == 2),
            "a target and its host"
        );
        let told = map.updated(update).expect("it is about the version that was told");
        assert_eq!(told, after);
        assert_eq!(
            call(&peer, &get_map(told.version, 1)).await.unwrap().update,
            None,
            "nothing newer in time"
        );
        handle.stop();
        drop(handle);
        let handle = world.start(Config { heartbeat_ms: 20, ..world.config() }).await;
        let peer = world.peer(&handle, after.fs_id);
        let map = whole(call(&peer, &get_map(0, 0)).await.unwrap().update);
        assert_eq!(map.target(TargetId::ost(0)), after.target(TargetId::ost(0)));
        assert!(map.version > after.version, "the MGS has a new address, so the map is newer");
        let again = call(&peer, &register_req(0, 2)).await.unwrap();
        assert_eq!(again.epoch, 2, "another address, another epoch");
    });
}

#[test]
fn heartbeats_keep_a_target_up_and_a_stranger_is_not_known() {
    run(async {
        let world = World::new().await;
        let config = Config { target_lease_ms: 0, ..world.config() };
        let handle = world.start(config).await;
        let peer = world.peer(&handle, 0);
        let epoch = call(&peer, &register_req(0, 1)).await.unwrap().epoch;
        world.seams.sleep_ms(5).await;
        let state = |map: &Map| map.target(TargetId::ost(0)).unwrap().state;
        assert_eq!(state(&handle.map().unwrap()), TargetState::Down, "a lease of no time is over");
        let beat =
            HeartbeatReq { fs: "scratch".parse().unwrap(), target: TargetId::ost(0), uuid: [1; 16], epoch };
        assert!(call(&peer, &beat).await.unwrap().known);
        let old = HeartbeatReq { epoch: epoch + 1, ..beat.clone() };
        assert!(!call(&peer, &old).await.unwrap().known);
        let stranger = HeartbeatReq { uuid: [9; 16], ..beat };
        assert!(!call(&peer, &stranger).await.unwrap().known);
    });
}

#[test]
fn a_target_that_is_served_is_not_given_to_a_second_server() {
    run(async {
        let world = World::new().await;
        let handle = world.start(Config { heartbeat_ms: 200, ..world.config() }).await;
        let peer = world.peer(&handle, 0);
        let epoch = call(&peer, &register_req(0, 1)).await.unwrap().epoch;
        let beat =
            HeartbeatReq { fs: "scratch".parse().unwrap(), target: TargetId::ost(0), uuid: [1; 16], epoch };
        let second = {
            let peer = peer.clone();
            tokio::spawn(async move { call(&peer, &register_req(0, 2)).await })
        };
        while !second.is_finished() {
            assert!(call(&peer, &beat).await.unwrap().known, "the first server keeps the target");
            world.seams.sleep_ms(20).await;
        }
        assert_eq!(
            second.await.unwrap().unwrap_err().to_string(),
            "cannot serve scratch-OST0000 at 10.0.0.1:2@tcp of oss1\
             \n  why:  10.0.0.1:1@tcp of oss1 serves this very target, and is alive\
             \n  data: nothing was changed; clients go on with the other server\
             \n  next: never serve a copy of a target beside it; to move it, stop the other server first\
             \n  code: E1012 (brindle explain E1012)"
        );
        // The first one dies: its silence gives the target to the second.
        let moved = call(&peer, &register_req(0, 2)).await.unwrap();
        assert_eq!(moved.epoch, epoch + 1);
    });
}

#[test]
fn strangers_are_refused_by_name() {
    run(async {
        let world = World::new().await;
        let handle = world.start(world.config()).await;
        let fs_id = handle.map().unwrap().fs_id;
        let foreign = world.peer(&handle, fs_id ^ 1);
        assert_eq!(call(&foreign, &get_map(0, 0)).await.unwrap_err().code, Code::WrongFs);
        let peer = world.peer(&handle, fs_id);
        let req = GetMapReq { fs: "home".parse().unwrap(), ..get_map(0, 0) };
        let fault = call(&peer, &req).await.unwrap_err();
        assert_eq!((fault.code, fault.why), (Code::NoSuchFs, vec!["it knows: scratch".into()]));
        let req = RegisterReq { fs_id: fs_id ^ 1, ..register_req(0, 1) };
        assert_eq!(call(&peer, &req).await.unwrap_err().code, Code::WrongFs);
        call(&peer, &register_req(0, 1)).await.unwrap();
        let req = RegisterReq { uuid: [77; 16], ..register_req(0, 1) };
        assert_eq!(call(&peer, &req).await.unwrap_err().code, Code::IndexInUse);
        let info = call(&peer, &TargetInfoReq {}).await.unwrap();
        assert_eq!((info.name.as_str(), info.state.as_str()), ("scratch-MGT0000", "active"));
    });
}

#[test]
fn what_is_no_sound_mgt_is_not_served() {
    run(async {
        let world = World::new().await;
        let other = tempfile::tempdir().unwrap();
        let config = Config { dir: other.path().to_str().unwrap().to_owned(), ..world.config() };
        let start_again = |config: Config| start(config, world.seams.clone(), world.transport.clone());
        assert_eq!(start_again(config).await.err().unwrap().code, Code::NotATarget);
        let store = world.dir.path().join(STORE_FILE);
        let mut bytes = std::fs::read(&store).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&store, bytes).unwrap();
        assert_eq!(start_again(world.config()).await.err().unwrap().code, Code::StoreDamaged);
    });
}
