//! The configuration of the private Slurm.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::Places;

/// Where a daemon of Slurm runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Name of its host.
    pub host: String,
    /// Address of that host.
    pub address: Ipv4Addr,
    /// Port of the daemon.
    pub port: u16,
}

/// The daemons of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemons {
    /// slurmctld.
    pub controller: Daemon,
    /// slurmd of each node, in the order of the nodes.
    pub nodes: Vec<Daemon>,
}

/// `burst_buffer.lua`: Slurm's plug-in `burst_buffer/lua` runs it.
pub const LUA: &str = include_str!("burst_buffer.lua");

/// Slurm's plug-in for burst buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plugin {
    /// Calls `dacctl`.
    #[default]
    Datawarp,
    /// Runs `burst_buffer.lua`, which calls `dacctl`.
    Lua,
}

impl Plugin {
    /// Name of the plugin in `BurstBufferType`.
    fn name(self) -> &'static str {
        match self {
            Plugin::Datawarp => "datawarp",
            Plugin::Lua => "lua",
        }
    }
}

/// Name of a node.
pub fn node(index: usize) -> String {
    format!("n{}", index + 1)
}

/// `slurm.conf`.
pub fn slurm_conf(places: &Places, daemons: &Daemons, plugin: Plugin) -> String {
    let dir = places.dir.display();
    let mut text = format!(
        "ClusterName=brindle\n\
         SlurmctldHost={host}({address})\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={dir}/run/munge.sock\n\
         CredType=cred/munge\n\
         SlurmctldPort={controller}\n\
         SlurmctldPidFile={dir}/run/slurmctld.pid\n\
         SlurmdPidFile={dir}/run/slurmd.%n.pid\n\
         SlurmdSpoolDir={dir}/spool/%n\n\
         StateSaveLocation={dir}/state\n\
         SlurmctldLogFile={dir}/log/slurmctld.log\n\
         SlurmdLogFile={dir}/log/slurmd.%n.log\n\
         DebugFlags=BurstBuffer\n\
         ProctrackType=proctrack/pgid\n\
         TaskPlugin=task/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         JobCompType=jobcomp/none\n\
         SwitchType=switch/none\n\
         MpiDefault=none\n\
         SchedulerType=sched/backfill\n\
         SchedulerParameters=bf_interval=5,sched_interval=2\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         SlurmdTimeout=10\n\
         MessageTimeout=5\n\
         ReturnToService=2\n\
         BurstBufferType=burst_buffer/{plugin}\n",
        host = daemons.controller.host,
        address = daemons.controller.address,
        controller = daemons.controller.port,
        plugin = plugin.name()
    );
    for (index, Daemon { host, address, port }) in daemons.nodes.iter().enumerate() {
        let name = node(index);
        let _ = writeln!(
            text,
            "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 CoresPerSocket=2 State=UNKNOWN"
        );
    }
    let last = node(daemons.nodes.len().saturating_sub(1)).split_off(1);
    let _ = writeln!(text, "PartitionName=main Nodes=n[1-{last}] Default=YES MaxTime=INFINITE State=UP");
    text
}

/// `burst_buffer.conf`. Without `TeardownFailure` Slurm leaves the buffer of a failed stage-out alone.
pub fn burst_buffer_conf(places: &Places, plugin: Plugin) -> String {
    let dacctl = places.dacctl();
    let dacctl = dacctl.display();
    let own = match plugin {
        Plugin::Datawarp => format!(
            "GetSysState={dacctl}\nGetSysStatus={dacctl}\nDefaultPool=default\nFlags=EnablePersistent\n"
        ),
        Plugin::Lua => "Directive=DW\n".to_owned(),
    };
    format!(
        "{own}\
         StageInTimeout=86400\n\
         StageOutTimeout=86400\n\
         OtherTimeout=300\n\
         ValidateTimeout=10\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_names_and_ports() {
        let places = Places { dir: "/d".into() };
        let at = |host: &str, last: u8, port| Daemon {
            host: host.to_owned(),
            address: Ipv4Addr::new(10, 64, 0, last),
            port,
        };
        let daemons = Daemons { controller: at("head", 1, 1), nodes: vec![at("n1", 2, 2), at("n2", 3, 3)] };
        let text = slurm_conf(&places, &daemons, Plugin::Lua);
        assert!(text.contains("SlurmctldHost=head(10.64.0.1)\n") && text.contains("SlurmctldPort=1\n"));
        assert!(text.contains("BurstBufferType=burst_buffer/lua\n"));
        assert!(text.contains("NodeName=n2 NodeHostname=n2 NodeAddr=10.64.0.3 Port=3 "));
        assert!(text.contains("PartitionName=main Nodes=n[1-2] "));
        assert!(burst_buffer_conf(&places, Plugin::Datawarp).starts_with("GetSysState=/d/bin/dacctl\n"));
    }
}
