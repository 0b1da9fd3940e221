//! Claims of programs at addresses that a nodemap limits.

use brindle_types::{Code, TargetId};
use brindle_wire::mgs::nodemap::Nodemap;

use super::*;

#[test]
fn an_address_that_is_limited_is_none_of_a_server() {
    run(async || {
        let setup = Setup::start(ServerConfig::default()).await;
        let limit = |read_only, range: &str| {
            let lab = Nodemap { addresses: vec![range.to_owned()], read_only, ..Nodemap::new("lab") };
            setup.service.nodemaps.replace(&[lab.into()]);
        };
        let as_a = async |kind, serves| {
            let claim = |config: &mut PeerConfig| (config.kind, config.serves) = (kind, serves);
            let peer = setup.peer_with(claim, Arc::new(NoNotifies));
            peer.call(request(ECHO, "x")).await.map(drop).map_err(|fault| fault.code)
        };
        let servers = [TargetId::mdt(0), TargetId::ost(3), TargetId::MGT].map(Some);
        let by_address = if LOCAL.get() { Ok(()) } else { Err(Code::NotForNodemap) };
        limit(true, "127.0.0.0/8");
        assert_eq!(as_a(PeerKind::Client, None).await, Ok(()), "mounts are what it is for");
        for target in servers {
            assert_eq!(as_a(PeerKind::Server, target).await, by_address, "{target:?}");
        }
        for (read_only, range) in [(true, "10.0.0.0/8"), (false, "127.0.0.0/8")] {
            limit(read_only, range);
            for target in servers {
                assert_eq!(as_a(PeerKind::Server, target).await, Ok(()), "{range} limits nobody here");
            }
        }
    });
}
