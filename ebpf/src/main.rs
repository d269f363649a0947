//! The kernel programs of ackbeat.
//!
//! | program | hook | file |
//! |---|---|---|
//! | `lifecycle` | `tp_btf/inet_sock_set_state` | [`lifecycle`] |
//! | `send_reset`, `receive_reset` | `tp_btf/tcp_send_reset`, `tp_btf/tcp_receive_reset` | [`resets`] |
//! | `retransmits` | `tp_btf/tcp_retransmit_skb` | [`retransmits`] |
//! | `terminations` | `tp_btf/signal_generate` | [`terminations`] |
//! | `sample_tracked`, `sample_all` | `iter/tcp` | [`sampler`] |
//!
//! Every tracing program leaves at once unless the socket (or the task) is in the network namespace that userspace names.
//! Offsets of kernel members are not known here: userspace reads them from the running kernel's BTF and writes them
//! to `.rodata` before the object is loaded (see [`members`]).
#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "members are read as 64 bits and are as narrow as what they are written to; a conversion that can fail would \
              bring a branch and a panic into each of them"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "the attributes of aya-ebpf hand the context over by value"
)]
#![expect(
    clippy::needless_borrows_for_generic_args,
    reason = "a key that is moved is copied, on a stack of 512 bytes"
)]

mod flow;
mod lifecycle;
mod maps;
mod members;
mod resets;
mod retransmits;
mod sampler;
mod snapshot;
mod terminations;
mod wire;

/// License of the programs; the helpers that they call are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
