//! Attaches the wire parser to every network interface of the namespace, and to those that come later.
//!
//! TCX (Linux 6.6) is tried first: a link that goes with this process, and that lives beside other programs. Where the
//! kernel refuses it, the older clsact filter does the same.

use std::{
    collections::BTreeMap,
    error::Error as _,
    future::poll_fn,
    io::{self, ErrorKind},
};

use aya::{
    Ebpf,
    programs::{
        LinkOrder, ProgramError, SchedClassifier, TcAttachType,
        tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcError},
    },
};
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_sys::{AsyncSocket, Socket, SocketAddr, TokioSocket, protocols::NETLINK_ROUTE};
use rtnetlink::packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage},
};

/// The programs for interfaces with an Ethernet header, the loopback interface among them.
pub(super) const WIRE_INGRESS: &str = "wire_ingress";
pub(super) const WIRE_EGRESS: &str = "wire_egress";
/// The programs for interfaces with an Ethernet header, and for those without: ingress, egress.
const ETHERNET: [&str; 2] = [WIRE_INGRESS, WIRE_EGRESS];
const HEADERLESS: [&str; 2] = ["wire_ingress_ip", "wire_egress_ip"];
/// The programs that this module loads.
pub const PROGRAMS: [&str; 4] = [ETHERNET[0], ETHERNET[1], HEADERLESS[0], HEADERLESS[1]];
/// The hooks, in the order of the programs' names.
const HOOKS: [TcAttachType; 2] = [TcAttachType::Ingress, TcAttachType::Egress];

/// Group of netlink messages about links (`RTMGRP_LINK`, `include/uapi/linux/rtnetlink.h`).
const RTMGRP_LINK: u32 = 1;
/// Messages about links that are read at once; each of them means the same, "look again".
const NEWS_MAX: usize = 64;

/// The wire parser is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum InterfacesError {
    /// The object lacks a program.
    #[error("the kernel programs have no {program}; run `cargo xtask build`, which builds and embeds them")]
    NoProgram {
        /// Its name.
        program: &'static str,
    },
    /// The kernel refused a program.
    #[error(
        "loading {program} failed; the wire parser needs Linux 5.17 and CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN"
    )]
    Load {
        /// Its name.
        program: &'static str,
        /// What the kernel said.
        #[source]
        cause: ProgramError,
    },
    /// A program could not be attached to an interface.
    #[error(
        "attaching {program} to {interface} failed; grant CAP_NET_ADMIN (and, before Linux 6.6, load sch_ingress)"
    )]
    Attach {
        /// The interface's name.
        interface: String,
        /// The program's name.
        program: &'static str,
        /// What the kernel said.
        #[source]
        cause: ProgramError,
    },
    /// The interfaces could not be listed or watched.
    #[error("{step} failed; allow AF_NETLINK sockets")]
    Netlink {
        /// The step, as a noun phrase.
        step: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

/// An interface as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    index: u32,
    name: String,
    kind: LinkLayerType,
    up: bool,
}

impl Interface {
    /// The programs that understand its packets; `None` where none does.
    fn programs(&self) -> Option<[&'static str; 2]> {
        match self.kind {
            LinkLayerType::Ether | LinkLayerType::Loopback => Some(ETHERNET),
            LinkLayerType::None
            | LinkLayerType::Rawip
            | LinkLayerType::Tunnel
            | LinkLayerType::Tunnel6
            | LinkLayerType::Sit => Some(HEADERLESS),
            _ => None,
        }
    }
}

/// An interface with the wire parser on it. Dropping the links detaches it.
struct Attached {
    name: String,
    is_loopback: bool,
    _links: Vec<SchedClassifierLink>,
}

/// The interfaces that the wire parser is attached to. Dropping it detaches it from all of them.
pub struct Interfaces {
    news: TokioSocket,
    attached: BTreeMap<u32, Attached>,
    /// Interfaces that were reported as not usable, so that each is reported once.
    refused: BTreeMap<u32, String>,
    /// Programs that are loaded and not attached, by name.
    unattached: Vec<String>,
}

impl Interfaces {
    /// Loads the wire programs and attaches them to every interface of the calling thread's network namespace that is
    /// up. Needs a tokio runtime.
    ///
    /// An interface that cannot be attached to is logged and left out. Programs that `unattached` names are loaded alone.
    ///
    /// # Errors
    /// [`InterfacesError`] if a program does not load, the interfaces cannot be listed, or none could be attached to.
    pub fn attach(ebpf: &mut Ebpf, unattached: &[String]) -> Result<Self, InterfacesError> {
        for program in PROGRAMS {
            classifier(ebpf, program)?
                .load()
                .or_else(
                    |error| if matches!(error, ProgramError::AlreadyLoaded) { Ok(()) } else { Err(error) },
                )
                .map_err(|cause| InterfacesError::Load { program, cause })?;
        }
        // Subscribed before the first listing: an interface that comes in between is in the news.
        let failed = |cause| InterfacesError::Netlink { step: "subscribing to news of interfaces", cause };
        let mut news = TokioSocket::new(NETLINK_ROUTE).map_err(failed)?;
        news.socket_mut().bind(&SocketAddr::new(0, RTMGRP_LINK)).map_err(failed)?;
        let (attached, refused) = (BTreeMap::new(), BTreeMap::new());
        let mut interfaces = Self { news, attached, refused, unattached: unattached.to_vec() };
        let first_error = interfaces.attach_new(ebpf)?;
        match first_error {
            Some(error) if interfaces.attached.is_empty() => Err(error),
            _ => Ok(interfaces),
        }
    }

    /// Waits until interfaces came, went or changed; then call [`Interfaces::follow`]. Cancel-safe: what is read here is
    /// only the fact that something changed, and the next listing shows what.
    ///
    /// # Errors
    /// [`InterfacesError::Netlink`] if the socket broke.
    pub async fn changed(&mut self) -> Result<(), InterfacesError> {
        // A buffer without room: messages are cut to nothing, which is all that is needed of them.
        let mut buffer: Vec<u8> = Vec::with_capacity(64);
        let received = poll_fn(|context| self.news.poll_recv(context, &mut buffer)).await;
        match received {
            Ok(_) => Ok(()),
            // The kernel dropped messages because nobody read: look again, that is all.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(cause) => Err(InterfacesError::Netlink { step: "reading news of interfaces", cause }),
        }
    }

    /// Attaches to interfaces that are new or came up, and forgets those that went. Does not block.
    ///
    /// # Errors
    /// [`InterfacesError::Netlink`] if the interfaces cannot be listed. One that cannot be attached to is logged.
    pub fn follow(&mut self, ebpf: &mut Ebpf) -> Result<(), InterfacesError> {
        let mut buffer: Vec<u8> = Vec::with_capacity(64);
        for _ in 0..NEWS_MAX {
            // What already waits is answered by the same listing.
            if self.news.socket_mut().recv(&mut buffer, libc::MSG_DONTWAIT).is_err() {
                break;
            }
            buffer.clear();
        }
        self.attach_new(ebpf).map(|_logged| ())
    }

    /// Names of the interfaces that the wire parser is attached to.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.attached.values().map(|attached| attached.name.as_str())
    }

    /// Whether it is attached to the loopback interface.
    #[must_use]
    pub fn has_loopback(&self) -> bool {
        self.attached.values().any(|attached| attached.is_loopback)
    }

    /// Attaches to what is up and not attached to yet. Gives the first failure, after logging all of them.
    fn attach_new(&mut self, ebpf: &mut Ebpf) -> Result<Option<InterfacesError>, InterfacesError> {
        let interfaces = list()?;
        let is_there = |index: &u32| interfaces.iter().any(|interface| interface.index == *index);
        self.attached.retain(|index, _| is_there(index));
        self.refused.retain(|index, _| is_there(index));
        let mut first_error = None;
        for interface in interfaces {
            if !interface.up
                || self.attached.contains_key(&interface.index)
                || self.refused.get(&interface.index) == Some(&interface.name)
            {
                continue;
            }
            let Some(programs) = interface.programs() else {
                tracing::warn!(interface = interface.name, kind = ?interface.kind,
                    "the wire parser does not know this kind of interface; heartbeats on it are unknown");
                self.refused.insert(interface.index, interface.name);
                continue;
            };
            match attach_pair(ebpf, &interface.name, programs, &self.unattached) {
                Ok(links) => {
                    tracing::debug!(interface = interface.name, "the wire parser is attached");
                    let is_loopback = interface.kind == LinkLayerType::Loopback;
                    self.attached.insert(
                        interface.index,
                        Attached { name: interface.name, is_loopback, _links: links },
                    );
                }
                Err(error) => {
                    tracing::warn!(
                        interface = interface.name,
                        %error, cause = ?error.source(),
                        "heartbeats on this interface are unknown"
                    );
                    self.refused.insert(interface.index, interface.name);
                    first_error = first_error.or(Some(error));
                }
            }
        }
        Ok(first_error)
    }
}

fn classifier<'a>(
    ebpf: &'a mut Ebpf,
    program: &'static str,
) -> Result<&'a mut SchedClassifier, InterfacesError> {
    ebpf.program_mut(program)
        .and_then(|found| found.try_into().ok())
        .ok_or(InterfacesError::NoProgram { program })
}

fn attach_pair(
    ebpf: &mut Ebpf,
    interface: &str,
    programs: [&'static str; 2],
    unattached: &[String],
) -> Result<Vec<SchedClassifierLink>, InterfacesError> {
    let sides = programs.into_iter().zip(HOOKS);
    sides
        .filter(|(program, _)| !unattached.iter().any(|name| name == program))
        .map(|(program, hook)| {
            attach_one(classifier(ebpf, program)?, interface, hook).map_err(|cause| InterfacesError::Attach {
                interface: interface.to_owned(),
                program,
                cause,
            })
        })
        .collect()
}

fn attach_one(
    program: &mut SchedClassifier,
    interface: &str,
    hook: TcAttachType,
) -> Result<SchedClassifierLink, ProgramError> {
    let tcx = program.attach_with_options(interface, hook, TcAttachOptions::TcxOrder(LinkOrder::default()));
    let link = match tcx {
        Ok(link) => link,
        Err(refusal) => {
            // Without the qdisc the reason of the first try is the one that matters.
            if ensure_clsact(interface).is_err() {
                return Err(refusal);
            }
            program.attach_with_options(interface, hook, TcAttachOptions::Netlink(NlOptions::default()))?
        }
    };
    program.take_link(link)
}

/// Gives an interface the clsact qdisc that a filter hangs on (`net/sched/sch_ingress.c`), unless it has one: the other
/// direction's program, or somebody else's, may have brought it.
///
/// # Errors
/// What netlink said, if it is not that the qdisc is there.
pub fn ensure_clsact(interface: &str) -> Result<(), TcError> {
    match tc::qdisc_add_clsact(interface) {
        Err(TcError::AlreadyAttached) => Ok(()),
        Err(TcError::NetlinkError(error)) if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
        added => added,
    }
}

/// Lists the interfaces of the network namespace that this thread is in.
fn list() -> Result<Vec<Interface>, InterfacesError> {
    list_links().map_err(|cause| InterfacesError::Netlink { step: "listing the interfaces", cause })
}

fn list_links() -> io::Result<Vec<Interface>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut request = NetlinkMessage::new(
        header,
        NetlinkPayload::from(RouteNetlinkMessage::GetLink(LinkMessage::default())),
    );
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut interfaces = Vec::new();
    loop {
        let (datagram, _sender) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(interfaces),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                    interfaces.extend(interface(&link));
                }
                _ => {}
            }
            // Messages are aligned to 4 bytes (`NLMSG_ALIGN`).
            let length = usize::try_from(message.header.length).unwrap_or(usize::MAX).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
        }
    }
}

fn interface(link: &LinkMessage) -> Option<Interface> {
    let name = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })?;
    Some(Interface {
        index: link.header.index,
        name,
        kind: link.header.link_layer_type,
        up: link.header.flags.contains(LinkFlags::Up),
    })
}
