//! The path that most tests use: a host, a router and a client, each in its own network namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::error::{Context as _, Result};

use crate::clock::monotonic_ns;
use crate::command::run;
use crate::namespace::Namespace;

/// IP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A host, a router and a client in a row. The router can cut a path without a word, and make it slow.
///
/// ```text
/// host 10.87.1.2 ── 10.87.1.1 router 10.87.2.1 ── 10.87.2.2 client
///  fd87:1::2        fd87:1::1        fd87:2::1      fd87:2::2
/// ```
pub struct Network {
    /// Where hosts and the sidecar run: the pod.
    pub host: Namespace,
    /// Forwards between the two.
    pub router: Namespace,
    /// Where clients run.
    pub client: Namespace,
}

/// Segments of cut connections are dropped while they are forwarded: nobody is told (no ICMP, no RST).
const CUT_TABLE: &str = "
table inet ackbeat {
  set cut_ports { type inet_service; }
  set refused_ports { type inet_service; }
  chain forward {
    type filter hook forward priority 0; policy accept;
    tcp sport @cut_ports drop
    tcp dport @cut_ports drop
    tcp sport @refused_ports drop
    tcp dport @refused_ports reject with icmpx host-unreachable
  }
}";

/// The rule that drops what comes from the client; `?` is what to do with it. It comes before the rules of a relay.
const CLIENT_SILENCED: [&str; 7] = ["rule", "?", "pref", "50", "iif", "to-client0", "blackhole"];

impl Network {
    /// Makes the three namespaces and the path between them.
    ///
    /// # Errors
    /// If this user may not, or iproute2 or nftables is missing.
    pub fn create() -> Result<Self> {
        let network = Self {
            host: Namespace::create("host")?,
            router: Namespace::create("router")?,
            client: Namespace::create("client")?,
        };
        network.join(&network.host, "host0", 1)?;
        network.join(&network.client, "client0", 2)?;
        network.router.set_sysctl("ipv4/ip_forward", "1")?;
        network.router.set_sysctl("ipv6/conf/all/forwarding", "1")?;
        // Many clients of one host are refused at the same time, each with an ICMP error of its own.
        network.router.set_sysctl("ipv4/icmp_ratelimit", "0")?;
        let rules = format!("add table inet ackbeat; delete table inet ackbeat; {CUT_TABLE}");
        run(Some(&network.router), "nft", &[rules.as_str()]).context("setting up the router failed")?;
        Ok(network)
    }

    /// A veth pair between the router and `end`, with addresses of subnet `subnet` and `end`'s default routes.
    fn join(&self, end: &Namespace, device: &str, subnet: u8) -> Result<()> {
        let router_device = format!("to-{device}");
        run(
            None,
            "ip",
            &[
                "link",
                "add",
                device,
                "netns",
                end.name(),
                "type",
                "veth",
                "peer",
                "name",
                &router_device,
                "netns",
                self.router.name(),
            ],
        )?;
        for (namespace, device, number) in [(&self.router, router_device.as_str(), 1), (end, device, 2)] {
            let v4 = format!("10.87.{subnet}.{number}/24");
            let v6 = format!("fd87:{subnet}::{number}/64");
            run(Some(namespace), "ip", &["address", "add", &v4, "dev", device])?;
            run(Some(namespace), "ip", &["-6", "address", "add", &v6, "dev", device, "nodad"])?;
            run(Some(namespace), "ip", &["link", "set", device, "up"])?;
        }
        run(Some(end), "ip", &["route", "add", "default", "via", &format!("10.87.{subnet}.1")])?;
        run(Some(end), "ip", &["-6", "route", "add", "default", "via", &format!("fd87:{subnet}::1")])?;
        Ok(())
    }

    /// The host's address.
    #[must_use]
    pub fn host_address(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => Ipv4Addr::new(10, 87, 1, 2).into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd87, 1, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// The client's address.
    #[must_use]
    pub fn client_address(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => Ipv4Addr::new(10, 87, 2, 2).into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd87, 2, 0, 0, 0, 0, 0, 2).into(),
        }
    }

    /// The router's address on the client's side.
    #[must_use]
    pub fn router_address(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => Ipv4Addr::new(10, 87, 2, 1).into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd87, 2, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    /// The router's address on the host's side: what the host sees of a connection that the router dialled.
    #[must_use]
    pub fn router_address_for_host(&self, version: IpVersion) -> IpAddr {
        match version {
            IpVersion::V4 => Ipv4Addr::new(10, 87, 1, 1).into(),
            IpVersion::V6 => Ipv6Addr::new(0xfd87, 1, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    /// Drops every segment of the connections whose client has `port`, both ways, and tells nobody.
    ///
    /// # Errors
    /// If nftables refuses.
    pub fn cut(&self, port: u16) -> Result<()> {
        self.cut_all(&[port])
    }

    /// The same for several clients, at one moment.
    ///
    /// # Errors
    /// As [`Network::cut`].
    pub fn cut_all(&self, ports: &[u16]) -> Result<()> {
        self.change_ports("add", "cut_ports", ports)
    }

    /// Ends a [`Network::cut`].
    ///
    /// # Errors
    /// If nftables refuses.
    pub fn heal(&self, port: u16) -> Result<()> {
        self.heal_all(&[port])
    }

    /// Ends a [`Network::cut_all`], at one moment.
    ///
    /// # Errors
    /// As [`Network::heal`].
    pub fn heal_all(&self, ports: &[u16]) -> Result<()> {
        self.change_ports("delete", "cut_ports", ports)
    }

    /// Lets the router answer every segment to the client with `port` with an ICMP error (host unreachable), as if it
    /// had no route to it any more, and drop what comes from there.
    ///
    /// # Errors
    /// If nftables refuses.
    pub fn refuse(&self, port: u16) -> Result<()> {
        self.change_ports("add", "refused_ports", &[port])
    }

    fn change_ports(&self, verb: &str, set: &str, ports: &[u16]) -> Result<()> {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let rule = format!("{verb} element inet ackbeat {set} {{ {} }}", ports.join(", "));
        run(Some(&self.router), "nft", &[rule.as_str()]).map(drop)
    }

    /// Lets the client's machine go down and come up again, with the same addresses: nobody says goodbye, and the new
    /// kernel knows nothing of the old one's sockets. Threads and processes of the old machine live on in the dark.
    /// Gives the time at which the old one was gone, in nanoseconds of `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// As [`Network::create`].
    pub fn reboot_client(&mut self) -> Result<u64> {
        let before_ns = monotonic_ns();
        // Both ends of the pair go, and with them what was on its way.
        run(Some(&self.router), "ip", &["link", "delete", "to-client0"])?;
        self.client = Namespace::create("client")?;
        self.join(&self.client, "client0", 2)?;
        Ok(before_ns)
    }

    /// Takes the host's interface away and puts a new one in its place, with the same name and addresses. Connections do not
    /// notice, but for a moment without a path.
    ///
    /// # Errors
    /// As [`Network::create`].
    pub fn replug_host(&self) -> Result<()> {
        run(Some(&self.host), "ip", &["link", "delete", "host0"])?;
        self.join(&self.host, "host0", 1)
    }

    /// Lets the router drop everything between host and client, both ways, without a word (blackhole routes).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn blackhole(&self) -> Result<()> {
        self.restore()?;
        for version in [IpVersion::V4, IpVersion::V6] {
            for address in [self.host_address(version), self.client_address(version)] {
                self.route(version, &["route", "replace", "blackhole", &address.to_string()])?;
            }
        }
        Ok(())
    }

    /// Lets the router answer everything that is for the client with an ICMP error (unreachable routes), and drop what
    /// comes from the client without a word.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unreachable(&self) -> Result<()> {
        self.restore()?;
        for version in [IpVersion::V4, IpVersion::V6] {
            let client = self.client_address(version).to_string();
            self.route(version, &["route", "replace", "unreachable", &client])?;
            // A route for the host's address would keep the ICMP errors from the host, too.
            self.route(version, &CLIENT_SILENCED.map(|word| if word == "?" { "add" } else { word }))?;
        }
        Ok(())
    }

    /// Ends [`Network::blackhole`] and [`Network::unreachable`]; does nothing if there is none.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn restore(&self) -> Result<()> {
        for version in [IpVersion::V4, IpVersion::V6] {
            let routes = self.route(version, &["route", "show"])?;
            for kind in ["blackhole", "unreachable"] {
                for line in routes.lines().filter(|line| line.starts_with(kind)) {
                    let address = line.split_whitespace().nth(1).context("a route has no address")?;
                    self.route(version, &["route", "delete", kind, address])?;
                }
            }
            if self.route(version, &["rule", "show"])?.contains("blackhole") {
                self.route(version, &CLIENT_SILENCED.map(|word| if word == "?" { "delete" } else { word }))?;
            }
        }
        Ok(())
    }

    /// Runs iproute2 in the router.
    fn route(&self, version: IpVersion, arguments: &[&str]) -> Result<String> {
        let family = match version {
            IpVersion::V4 => "-4",
            IpVersion::V6 => "-6",
        };
        run(Some(&self.router), "ip", &[&[family], arguments].concat())
    }

    /// Lets the router forward at most `kilobytes_per_second` towards the client, with a queue of `queue_kilobytes`.
    ///
    /// # Errors
    /// If the kernel has no token bucket filter.
    pub fn slow_down(&self, kilobytes_per_second: u32, queue_kilobytes: u32) -> Result<()> {
        // A burst of 64 KiB: what segmentation offload hands over at once must pass the bucket whole.
        self.limit_rate(kilobytes_per_second * 8, "64kb", queue_kilobytes)
    }

    /// Makes the way to the client a link of `kilobits_per_second`, as a modem is: packet by packet.
    ///
    /// # Errors
    /// As [`Network::slow_down`].
    pub fn slow_link(&self, kilobits_per_second: u32, queue_kilobytes: u32) -> Result<()> {
        // A bucket that holds one packet: what segmentation offload hands over at once is cut up (`tbf_segment()`).
        self.limit_rate(kilobits_per_second, "2kb", queue_kilobytes)
    }

    fn limit_rate(&self, kilobits_per_second: u32, burst: &str, queue_kilobytes: u32) -> Result<()> {
        // An ARP reply or request behind the queue comes too late, and what is for the client waits until then.
        self.know_neighbours(&self.router, "to-client0", &self.client, "client0")?;
        self.know_neighbours(&self.client, "client0", &self.router, "to-client0")?;
        let rate = format!("{kilobits_per_second}kbit");
        let limit = format!("{queue_kilobytes}kb");
        let device = "to-client0";
        run(
            Some(&self.router),
            "tc",
            &[
                "qdisc", "replace", "dev", device, "root", "tbf", "rate", &rate, "burst", burst, "limit",
                &limit,
            ],
        )
        .map(drop)
    }

    /// Tells one end of a link the hardware address of the other end's addresses, for good.
    fn know_neighbours(&self, end: &Namespace, device: &str, other: &Namespace, of: &str) -> Result<()> {
        let link = run(Some(other), "ip", &["-o", "link", "show", "dev", of])?;
        let hardware = link.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        let hardware = hardware.with_context(|| format!("{of} has no hardware address: {link}"))?;
        let number = if other.name() == self.router.name() { 1 } else { 2 };
        for address in [format!("10.87.2.{number}"), format!("fd87:2::{number}")] {
            let entry = ["neigh", "replace", &address, "lladdr", hardware, "dev", device, "nud", "permanent"];
            run(Some(end), "ip", &entry)?;
        }
        Ok(())
    }
}
