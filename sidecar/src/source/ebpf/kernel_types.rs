//! Where the running kernel keeps what the programs read: offsets and widths from its BTF.

use std::path::Path;

use ackbeat_abi::{MEMBER_COUNT, Member, MemberLocation};
use btf_rs::{Btf, BtfType, Struct, Type};

use super::error::{LoadError, MissingKind, MissingSignal};

/// Where the kernel shows its own type information (`CONFIG_DEBUG_INFO_BTF`, Linux 5.4).
pub const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Members without which no record makes sense.
const REQUIRED: [Member; 10] = [
    Member::State,
    Member::Family,
    Member::LocalAddressV4,
    Member::PeerAddressV4,
    Member::LocalPort,
    Member::LocalPortSent,
    Member::PeerPort,
    Member::NetworkNamespace,
    Member::NamespaceInode,
    Member::SndUna,
];

/// Deepest chain of typedefs, qualifiers and anonymous members that is followed. Real ones have fewer than ten; the
/// bound is for type information that is broken.
const DEPTH_MAX: usize = 32;

/// What the loader needs to know of the running kernel's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelTypes {
    /// Where each [`Member`] lies, by its number.
    pub members: [MemberLocation; MEMBER_COUNT],
    /// Whether `tcp_send_reset` has the reset reason as its third argument (Linux 6.10).
    pub send_reset_has_reason: bool,
}

impl KernelTypes {
    /// Reads the running kernel's types.
    ///
    /// # Errors
    /// [`LoadError::Types`] if the kernel shows none, or lacks a member without which nothing works.
    pub fn of_running_kernel() -> Result<Self, LoadError> {
        let path = Path::new(KERNEL_BTF);
        let btf = Btf::from_file(path).map_err(|error| LoadError::Types {
            cause: format!("{KERNEL_BTF}: {error}"),
            fix: "use a kernel that is built with CONFIG_DEBUG_INFO_BTF=y, and let /sys be visible in the container"
                .to_owned(),
            kind: match error {
                btf_rs::Error::IO(cause) => MissingKind::of(Some(&cause)),
                _ => MissingKind::Feature,
            },
        })?;
        Self::from_btf(&btf)
    }

    /// Reads the types from BTF.
    ///
    /// # Errors
    /// [`LoadError::Types`] if a member is missing without which nothing works.
    pub fn from_btf(btf: &Btf) -> Result<Self, LoadError> {
        let mut members = [MemberLocation::default(); MEMBER_COUNT];
        for (location, member) in members.iter_mut().zip(Member::ALL) {
            if let Some(found) = locate(btf, *member) {
                *location = found;
            } else if REQUIRED.contains(member) {
                return Err(LoadError::Types {
                    cause: format!("struct {} has no member {}", member.struct_name(), member.path()),
                    fix: "report the kernel version: this member was renamed, and nothing works without it"
                        .to_owned(),
                    kind: MissingKind::Feature,
                });
            }
        }
        let send_reset_has_reason =
            tracepoint_argument_count(btf, "tcp_send_reset").is_some_and(|count| count >= 3);
        Ok(Self { members, send_reset_has_reason })
    }

    /// Bits of the members that this kernel has, as [`ackbeat_abi::Snapshot::available`] shows them.
    #[must_use]
    pub fn available(&self) -> u64 {
        Member::ALL
            .iter()
            .zip(&self.members)
            .filter(|(_, location)| location.width_bytes != 0)
            .fold(0, |bits, (member, _)| bits | member.bit())
    }

    /// One entry for each member that this kernel lacks.
    pub fn missing_members(&self) -> impl Iterator<Item = MissingSignal> + '_ {
        Member::ALL.iter().zip(&self.members).filter(|(_, location)| location.width_bytes == 0).map(
            |(member, _)| MissingSignal {
                signal: "member",
                reason: format!(
                    "struct {} of this kernel has no member {}",
                    member.struct_name(),
                    member.path()
                ),
                fix: "none is needed: what depends on it is left out of spans".to_owned(),
            },
        )
    }
}

/// Arguments that a tracepoint gives to a program, if this kernel has the tracepoint.
///
/// The typedef `btf_trace_<name>` is a pointer to a function whose first parameter is the tracepoint's private data.
#[must_use]
pub fn tracepoint_argument_count(btf: &Btf, tracepoint: &str) -> Option<usize> {
    let types = btf.resolve_types_by_name(&format!("btf_trace_{tracepoint}")).ok()?;
    let typedef = types.into_iter().find(|found| matches!(found, Type::Typedef(_)))?;
    let pointer = strip(btf, typedef)?;
    let Type::Ptr(pointer) = pointer else { return None };
    let Type::FuncProto(prototype) = strip(btf, btf.resolve_chained_type(&pointer).ok()?)? else {
        return None;
    };
    prototype.parameters.len().checked_sub(1)
}

/// Where a member lies; `None` if this kernel lacks it, or keeps it in a form that the programs cannot read.
#[must_use]
pub fn locate(btf: &Btf, member: Member) -> Option<MemberLocation> {
    let outer =
        btf.resolve_types_by_name(member.struct_name()).ok()?.into_iter().find_map(|found| match found {
            Type::Struct(found) => Some(found),
            _ => None,
        })?;
    let mut place = Place { found: Type::Struct(outer), offset_bits: 0, bit_field_bits: None };
    for name in member.path().split('.') {
        place = step(btf, &place, name, 0)?;
    }
    place.location(btf)
}

/// A type at an offset from the outermost struct.
struct Place {
    found: Type,
    offset_bits: u32,
    bit_field_bits: Option<u32>,
}

impl Place {
    fn location(self, btf: &Btf) -> Option<MemberLocation> {
        if let Some(size_bits) = self.bit_field_bits {
            // The smallest aligned unit that holds the whole field.
            return [8_u32, 16, 32, 64].into_iter().find_map(|unit_bits| {
                let shift_bits = self.offset_bits % unit_bits;
                (shift_bits + size_bits <= unit_bits).then_some(MemberLocation {
                    offset_bytes: (self.offset_bits - shift_bits) / 8,
                    width_bytes: unit_bits / 8,
                    shift_bits,
                    size_bits,
                })
            });
        }
        let width_bytes = match strip(btf, self.found)? {
            Type::Int(int) => int.size(),
            Type::Enum(found) => found.size(),
            Type::Enum64(found) => found.size(),
            Type::Ptr(_) => 8,
            // An address: read in halves.
            Type::Struct(found) if found.size() == 16 => 8,
            _ => return None,
        };
        let width_bytes = u32::try_from(width_bytes).ok().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
        self.offset_bits.is_multiple_of(8).then_some(MemberLocation {
            offset_bytes: self.offset_bits / 8,
            width_bytes,
            shift_bits: 0,
            size_bits: 0,
        })
    }
}

/// The member of this name, also inside anonymous structs and unions.
fn step(btf: &Btf, place: &Place, name: &str, depth: usize) -> Option<Place> {
    if depth > DEPTH_MAX {
        return None;
    }
    let outer: Struct = match strip(btf, place.found.clone())? {
        Type::Struct(outer) | Type::Union(outer) => outer,
        _ => return None,
    };
    for member in &outer.members {
        let member_name = btf.resolve_name(member).ok()?;
        if member_name != name && !member_name.is_empty() {
            continue;
        }
        let inner = Place {
            found: btf.resolve_chained_type(member).ok()?,
            offset_bits: place.offset_bits.checked_add(member.bit_offset())?,
            bit_field_bits: member.bitfield_size().filter(|size_bits| *size_bits != 0),
        };
        if member_name == name {
            return Some(inner);
        }
        if let Some(found) = step(btf, &inner, name, depth + 1) {
            return Some(found);
        }
    }
    None
}

/// The type behind typedefs and qualifiers.
fn strip(btf: &Btf, mut found: Type) -> Option<Type> {
    for _ in 0..DEPTH_MAX {
        let inner: &dyn BtfType = match &found {
            Type::Typedef(inner) => inner,
            Type::Const(inner) | Type::Volatile(inner) | Type::Restrict(inner) => inner,
            Type::TypeTag(inner) => inner,
            _ => return Some(found),
        };
        found = btf.resolve_chained_type(inner).ok()?;
    }
    None
}

#[cfg(test)]
#[path = "kernel_types_tests.rs"]
mod tests;
