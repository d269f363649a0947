//! Numbers that both sides name.

macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident : $repr:ty { $($(#[$variant_meta:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[repr($repr)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $value),+
        }
        impl $name {
            /// Every variant, in the order of its number.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The variant with this number, if there is one.
            #[must_use]
            pub const fn from_number(number: $repr) -> Option<Self> {
                match number {
                    $($value => Some(Self::$variant),)+
                    _ => None,
                }
            }
            /// The variant's number.
            #[must_use]
            pub const fn number(self) -> $repr {
                self as $repr
            }
        }
    };
}

numbered! {
    /// What a record in the ring buffer is.
    RecordKind: u32 {
        /// A [`crate::Lifecycle`].
        Lifecycle = 1,
        /// A [`crate::Reset`].
        Reset = 2,
        /// A [`crate::Frame`].
        Frame = 3,
        /// A [`crate::Synchronization`].
        Synchronization = 4,
        /// An [`crate::Outstanding`].
        Outstanding = 5,
        /// An [`crate::UpgradeHead`].
        UpgradeHead = 6,
        /// A [`crate::Termination`].
        Termination = 7,
    }
}

numbered! {
    /// Which way bytes go, seen from the pod.
    Direction: u8 {
        /// From the peer to the pod.
        Ingress = 0,
        /// From the pod to the peer.
        Egress = 1,
    }
}

numbered! {
    /// Why the wire parser does not follow a direction of a stream.
    LossReason: u8 {
        /// The connection is older than the sidecar: the parser came in the middle.
        Midstream = 1,
        /// A segment that held a frame header went by unseen or out of order.
        Hole = 2,
        /// One buffer held more frames than [`crate::FRAMES_PER_BUFFER_MAX`].
        TooManyFrames = 3,
        /// Bytes where a frame header must be are none (RFC 6455 section 5.2).
        InvalidHeader = 4,
        /// The stream does not begin with an HTTP/1.1 GET, so it is no WebSocket (or TLS).
        NotHttp = 5,
        /// The head of the 101 answer is longer than [`crate::HEAD_MAX_BYTES`].
        HeadTooLong = 6,
        /// Two processors handled segments of the same direction at the same time.
        Contended = 7,
        /// The kernel refused to show the packet's bytes.
        Unreadable = 8,
    }
}

numbered! {
    /// Per-CPU counters, indices of the map `COUNTERS`.
    Counter: u32 {
        /// Records that a program wanted to send: submitted + dropped.
        RecordsSent = 0,
        /// Records that found no room in the ring buffer.
        RecordsDropped = 1,
        /// Flows that found no room in the map `FLOWS`.
        FlowsRejected = 2,
        /// Buffers that the wire parser looked at.
        WireBuffers = 3,
        /// Data frames that the wire parser stepped over, or that no pattern fits.
        WireDataFrames = 4,
        /// Control frames that the wire parser reported.
        WireControlFrames = 5,
        /// Times that a direction of a stream was lost, for any reason.
        WireLosses = 6,
        /// Times that a direction of a stream was found again.
        WireRecoveries = 7,
        /// Segments that were nothing but a repetition.
        WireRetransmissions = 8,
        /// Upgrade requests whose head was not at hand when the 101 answer went out.
        HeadsMissing = 9,
        /// Streams that turned out to be no WebSocket (TLS, other protocols).
        WireNotHttp = 10,
        /// Lifecycle transitions in this network namespace.
        Transitions = 11,
        /// Retransmitted segments in this network namespace.
        Retransmits = 12,
        /// Short data frames whose payload was compared with the patterns of text heartbeats.
        WireTextFrames = 13,
        /// Of them, those that a pattern fits: they were reported, where the position was certain.
        WireTextMatches = 14,
    }
}

/// Number of [`Counter`]s.
pub const COUNTER_COUNT: u32 = 15;

const _: () = assert!(Counter::ALL.len() == COUNTER_COUNT as usize);
