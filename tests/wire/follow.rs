//! The sidecar attaches the wire programs to interfaces that come later, and to those without an Ethernet header.

use std::time::Duration;

use ackbeat::source::ebpf::interfaces::Interfaces;
use ackbeat_tests::{namespace::Namespace, process::run};
use anyhow::{Context, Result, bail};
use aya::{
    Ebpf,
    programs::{SchedClassifier, TcAttachType},
};

use crate::kernel::object_path;

/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names of the wire programs on both hooks of an interface.
fn attached_to(interface: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for hook in [TcAttachType::Ingress, TcAttachType::Egress] {
        let (_revision, programs) = SchedClassifier::query_tcx(interface, hook)?;
        names.extend(programs.iter().filter_map(|program| program.name_as_str().map(str::to_owned)));
    }
    Ok(names)
}

/// Follows the news until exactly these interfaces are attached to.
async fn wait_until(interfaces: &mut Interfaces, ebpf: &mut Ebpf, wanted: &[&str]) -> Result<()> {
    loop {
        let mut names: Vec<_> = interfaces.names().collect();
        names.sort_unstable();
        if names == wanted {
            return Ok(());
        }
        let seen = format!("{names:?}");
        if tokio::time::timeout(PATIENCE, interfaces.changed()).await.is_err() {
            bail!("no news of interfaces in {PATIENCE:?}: attached to {seen}, not to {wanted:?}");
        }
        interfaces.follow(ebpf)?;
    }
}

#[test]
fn interfaces_are_followed() -> Result<()> {
    let namespace = Namespace::create("follow")?;
    namespace
        .run(|| -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut ebpf = Ebpf::load_file(object_path())?;
                let mut interfaces = Interfaces::attach(&mut ebpf, &[])?;
                wait_until(&mut interfaces, &mut ebpf, &["lo"]).await?;
                assert_eq!(attached_to("lo")?, ["wire_ingress", "wire_egress"]);

                run(
                    Some(&namespace),
                    "ip",
                    &["link", "add", "here0", "type", "veth", "peer", "name", "there0"],
                )?;
                run(Some(&namespace), "ip", &["link", "set", "here0", "up"])?;
                wait_until(&mut interfaces, &mut ebpf, &["here0", "lo"]).await?;

                run(Some(&namespace), "ip", &["tuntap", "add", "dev", "tun0", "mode", "tun"])?;
                run(Some(&namespace), "ip", &["link", "set", "tun0", "up"])?;
                wait_until(&mut interfaces, &mut ebpf, &["here0", "lo", "tun0"]).await?;
                assert_eq!(attached_to("tun0")?, ["wire_ingress_ip", "wire_egress_ip"]);

                run(Some(&namespace), "ip", &["link", "delete", "here0"])?;
                wait_until(&mut interfaces, &mut ebpf, &["lo", "tun0"]).await?;
                drop(interfaces);
                assert_eq!(attached_to("lo")?, [""; 0], "dropping detaches");
                Ok(())
            })
        })
        .context("in the namespace")?
}
