//! A kernel program that does nothing, made of two instructions: what the kernel reports for it is what measuring costs.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use anyhow::{Context, Result};

/// A command of `enum bpf_cmd` (`include/uapi/linux/bpf.h`).
const BPF_PROG_LOAD: libc::c_long = 5;
/// `BPF_PROG_TYPE_SOCKET_FILTER` of `enum bpf_prog_type`.
const SOCKET_FILTER: u32 = 1;
/// `r0 = 0; exit`: each instruction is 8 bytes (RFC 9669 section 3).
const EMPTY_PROGRAM: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`; what follows may be left out, and is zero then.
#[repr(C)]
struct LoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
}

/// Loads a socket filter that does nothing and accepts nothing.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn load_empty_filter() -> Result<File> {
    let license = c"GPL";
    let attributes = LoadAttributes {
        program_type: SOCKET_FILTER,
        instruction_count: 2,
        instructions: EMPTY_PROGRAM.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the kernel reads no more than the size that it is given, of values that outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            std::ptr::from_ref(&attributes),
            size_of::<LoadAttributes>(),
        )
    };
    let descriptor = RawFd::try_from(result).context("a descriptor is an int")?;
    if descriptor < 0 {
        return Err(io::Error::last_os_error()).context("loading an empty kernel program failed");
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Lets a loaded filter look at what a socket receives (`SO_ATTACH_BPF`, socket(7)).
///
/// # Errors
/// The kernel refuses.
pub(crate) fn attach_filter(socket: &impl AsRawFd, filter: &File) -> Result<()> {
    let number: libc::c_int = filter.as_raw_fd();
    let length = libc::socklen_t::try_from(size_of::<libc::c_int>()).context("an int is short")?;
    // SAFETY: the kernel reads an int from where it is told, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            std::ptr::from_ref(&number).cast(),
            length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error()).context("attaching an empty kernel program failed");
    }
    Ok(())
}
