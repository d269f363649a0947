use super::*;

/// Writes BTF (`include/uapi/linux/btf.h`) for a kernel that never existed.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const FUNCTION_PROTOTYPE: u32 = 13;

impl Writer {
    fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.bytes().chain([0]));
        offset
    }

    fn put(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn header(&mut self, name: &str, kind: u32, flag: bool, length: usize, size_or_type: u32) -> u32 {
        let name = self.string(name);
        self.put(&[name, u32::from(flag) << 31 | kind << 24 | u32::try_from(length).unwrap(), size_or_type]);
        self.count += 1;
        self.count
    }

    fn int(&mut self, name: &str, bytes: u32) -> u32 {
        let id = self.header(name, INT, false, 0, bytes);
        self.put(&[bytes * 8]);
        id
    }

    fn refer(&mut self, kind: u32, name: &str, to: u32) -> u32 {
        self.header(name, kind, false, 0, to)
    }

    fn array(&mut self, of: u32, length: u32) -> u32 {
        let id = self.header("", ARRAY, false, 0, 0);
        self.put(&[of, of, length]);
        id
    }

    /// Members: name, type, offset in bits, and size in bits of a bit field.
    fn compound(&mut self, kind: u32, name: &str, bytes: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let id = self.header(name, kind, true, members.len(), bytes);
        for (name, member_type, offset_bits, size_bits) in members {
            let name = self.string(name);
            self.put(&[name, *member_type, size_bits << 24 | offset_bits]);
        }
        id
    }

    fn prototype(&mut self, parameters: &[u32]) -> u32 {
        let id = self.header("", FUNCTION_PROTOTYPE, false, parameters.len(), 0);
        for parameter in parameters {
            self.put(&[0, *parameter]);
        }
        id
    }

    fn finish(self) -> Btf {
        let (types, strings) =
            (u32::try_from(self.types.len()).unwrap(), u32::try_from(self.strings.len()).unwrap());
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend([24, 0, types, types, strings].iter().take(1).flat_map(|word: &u32| word.to_le_bytes()));
        bytes.extend([0, types, types, strings].iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(self.types);
        bytes.extend(self.strings);
        Btf::from_bytes(&bytes).unwrap()
    }
}

/// A `tcp_sock` with everything that makes real ones hard to read: nested and anonymous members, unions, typedefs,
/// qualifiers, bit fields, an address that is an array in a union in a struct.
fn synthetic(with_reason: bool) -> Btf {
    let mut to = Writer::new();
    let byte = to.int("unsigned char", 1);
    let short = to.int("unsigned short", 2);
    let word = to.int("unsigned int", 4);
    let long = to.int("long long", 8);
    let word_alias = to.refer(TYPEDEF, "u32", word);
    let volatile_byte = to.refer(VOLATILE, "", byte);
    let sixteen = to.array(byte, 16);
    let address_union = to.compound(UNION, "", 16, &[("u6_addr8", sixteen, 0, 0)]);
    let address = to.compound(STRUCT, "in6_addr", 16, &[("in6_u", address_union, 0, 0)]);
    let namespace_common = to.compound(STRUCT, "ns_common", 8, &[("inum", word, 32, 0)]);
    let namespace = to.compound(STRUCT, "net", 72, &[("ns", namespace_common, 64 * 8, 0)]);
    let namespace_pointer = to.refer(POINTER, "", namespace);
    let possible = to.compound(STRUCT, "", 8, &[("net", namespace_pointer, 0, 0)]);
    let possible = to.refer(TYPEDEF, "possible_net_t", possible);
    let pair =
        to.compound(STRUCT, "", 8, &[("skc_daddr", word_alias, 0, 0), ("skc_rcv_saddr", word_alias, 32, 0)]);
    let addresses = to.compound(UNION, "", 8, &[("skc_addrpair", long, 0, 0), ("", pair, 0, 0)]);
    let ports = to.compound(STRUCT, "", 4, &[("skc_dport", short, 0, 0), ("skc_num", short, 16, 0)]);
    let common = to.compound(
        STRUCT,
        "sock_common",
        64,
        &[
            ("", addresses, 0, 0),
            ("", ports, 96, 0),
            ("skc_family", short, 128, 0),
            ("skc_state", volatile_byte, 144, 0),
            ("skc_net", possible, 192, 0),
            ("skc_v6_daddr", address, 256, 0),
            ("skc_v6_rcv_saddr", address, 384, 0),
        ],
    );
    let sock =
        to.compound(STRUCT, "sock", 72, &[("__sk_common", common, 0, 0), ("sk_shutdown", word, 514, 2)]);
    let inet = to.compound(STRUCT, "inet_sock", 80, &[("sk", sock, 0, 0), ("inet_sport", short, 592, 0)]);
    let connection = to.compound(STRUCT, "inet_connection_sock", 80, &[("icsk_inet", inet, 0, 0)]);
    to.compound(
        STRUCT,
        "tcp_sock",
        104,
        &[("inet_conn", connection, 0, 0), ("snd_una", word_alias, 640, 0), ("bytes_acked", long, 704, 0)],
    );
    let mut parameters = vec![long, long, long];
    parameters.extend(with_reason.then_some(word));
    let prototype = to.prototype(&parameters);
    let pointer = to.refer(POINTER, "", prototype);
    to.refer(TYPEDEF, "btf_trace_tcp_send_reset", pointer);
    to.finish()
}

fn plain(offset_bytes: u32, width_bytes: u32) -> Option<MemberLocation> {
    Some(MemberLocation { offset_bytes, width_bytes, shift_bits: 0, size_bits: 0 })
}

#[test]
fn members_are_found_through_nesting_anonymity_and_typedefs() {
    let btf = synthetic(true);
    assert_eq!(locate(&btf, Member::PeerAddressV4), plain(0, 4));
    assert_eq!(locate(&btf, Member::LocalAddressV4), plain(4, 4));
    assert_eq!(locate(&btf, Member::PeerPort), plain(12, 2));
    assert_eq!(locate(&btf, Member::LocalPort), plain(14, 2));
    assert_eq!(locate(&btf, Member::State), plain(18, 1));
    assert_eq!(locate(&btf, Member::NetworkNamespace), plain(24, 8));
    assert_eq!(locate(&btf, Member::LocalAddressV6), plain(48, 8));
    assert_eq!(locate(&btf, Member::SndUna), plain(80, 4));
    assert_eq!(locate(&btf, Member::BytesAcked), plain(88, 8));
    assert_eq!(locate(&btf, Member::NamespaceInode), plain(68, 4));
}

#[test]
fn a_bit_field_has_its_storage_unit_shift_and_size() {
    let location = locate(&synthetic(true), Member::SkShutdown);
    assert_eq!(
        location,
        Some(MemberLocation { offset_bytes: 64, width_bytes: 1, shift_bits: 2, size_bits: 2 })
    );
}

#[test]
fn a_member_that_is_missing_is_a_missing_signal_and_no_bit() {
    let types = KernelTypes::from_btf(&synthetic(true)).unwrap();
    assert_eq!(types.available() & Member::SndWnd.bit(), 0);
    assert_ne!(types.available() & Member::SndUna.bit(), 0);
    assert!(types.missing_members().any(|missing| missing.reason.contains("snd_wnd")));
}

#[test]
fn a_kernel_without_what_everything_needs_is_refused_by_name() {
    let mut to = Writer::new();
    to.compound(STRUCT, "tcp_sock", 8, &[]);
    let error = KernelTypes::from_btf(&to.finish()).unwrap_err().to_string();
    assert!(error.contains("skc_state"), "{error}");
}

#[test]
fn the_arguments_of_a_tracepoint_are_counted() {
    for with_reason in [false, true] {
        let btf = synthetic(with_reason);
        assert_eq!(tracepoint_argument_count(&btf, "tcp_send_reset"), Some(2 + usize::from(with_reason)));
        assert_eq!(KernelTypes::from_btf(&btf).unwrap().send_reset_has_reason, with_reason);
        assert_eq!(tracepoint_argument_count(&btf, "no_such_tracepoint"), None);
    }
}
