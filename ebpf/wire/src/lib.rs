//! The WebSocket stream parser (RFC 6455), pure.
//!
//! The same code runs in the kernel program and in the tests: state plus bytes in, control frames and losses out. No
//! allocation, no clock, no IO.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

pub mod state;
