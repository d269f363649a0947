//! The clsact qdisc, which the wire parser hangs on where the kernel has no TCX (before Linux 6.6).

use ackbeat::source::ebpf::interfaces::ensure_clsact;
use ackbeat_tests::network::Network;
use anyhow::{Context, Result};

/// Each direction's program asks for it, and the second one finds the first one's.
#[test]
fn that_the_qdisc_is_there_already_is_no_failure() -> Result<()> {
    let network = Network::create()?;
    for direction in ["ingress", "egress"] {
        network
            .host
            .run(|| ensure_clsact("lo"))?
            .with_context(|| format!("the qdisc for the {direction} program was refused"))?;
    }
    let refused = network.host.run(|| ensure_clsact("no-such-link"))?;
    anyhow::ensure!(refused.is_err(), "an interface that is not there got a qdisc");
    Ok(())
}
