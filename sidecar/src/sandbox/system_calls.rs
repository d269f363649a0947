//! Seccomp filters (`Documentation/userspace-api/seccomp_filter.rst`): system calls that this process never makes fail
//! with EPERM, on every thread.
//!
//! They name what is refused, not what is allowed: a C library or a kernel that is newer than this list must not break
//! the sidecar.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// A filter could not be put in place.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    /// The rules make no program.
    #[error("compiling the seccomp filter failed: {0}")]
    Compile(#[from] BackendError),
    /// The kernel refused it.
    #[error("the kernel refused the seccomp filter: {0}; it needs CONFIG_SECCOMP_FILTER")]
    Apply(#[from] seccompiler::Error),
}

/// Refused whatever their arguments are.
const NEVER: &[libc::c_long] = &[
    // Another program, or another process's memory, files and life.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    // Another view of the system.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_mknodat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Another user.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_personality,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The machine.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_settimeofday,
    // Large parts of the kernel that nothing here uses.
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The same, on the architecture whose table has them.
#[cfg(target_arch = "x86_64")]
const NEVER_HERE: &[libc::c_long] = &[
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_mknod,
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_HERE: &[libc::c_long] = &[];

/// Sockets that are made: everything else is refused.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// What bpf(2) may still do once the programs run (`enum bpf_cmd`, include/uapi/linux/bpf.h): read and write maps, attach
/// what is loaded to an interface that comes later, and make an iterator.
const BPF_COMMANDS: [u64; 8] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    15, // BPF_OBJ_GET_INFO_BY_FD
    28, // BPF_LINK_CREATE
    33, // BPF_ITER_CREATE
    34, // BPF_LINK_DETACH
];

/// What every thread may not do from the start on. It also sets `no_new_privs`.
///
/// # Errors
/// [`FilterError`].
pub(super) fn confine_from_the_start() -> Result<(), FilterError> {
    seccompiler::apply_filter(&start_program()?)?;
    seccompiler::apply_filter(&clone3_program()?)?;
    Ok(())
}

/// What no thread may do once the kernel programs are attached, or where there are none: load one. Threads that run have
/// it too (`SECCOMP_FILTER_FLAG_TSYNC`).
///
/// # Errors
/// [`FilterError`].
pub(super) fn confine_bpf(uses_programs: bool) -> Result<(), FilterError> {
    Ok(seccompiler::apply_filter_all_threads(&bpf_program(uses_programs)?)?)
}

fn start_program() -> Result<BpfProgram, FilterError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.iter().chain(NEVER_HERE).map(|number| (*number, Vec::new())).collect();
    let thread = libc::CLONE_THREAD.unsigned_abs().into();
    rules.insert(
        libc::SYS_clone,
        // A thread is no process: without this flag it would be one.
        vec![rule(vec![condition(0, SeccompCmpOp::MaskedEq(thread), 0)?])?],
    );
    let other_families = FAMILIES
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, family.unsigned_abs().into()))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, vec![rule(other_families)?]);
    // Its own limits are 0's.
    rules.insert(libc::SYS_prlimit64, vec![rule(vec![condition(0, SeccompCmpOp::Ne, 0)?])?]);
    program(rules, EPERM)
}

/// A filter cannot read what clone3(2) is asked for. Without it the C library uses clone(2), which can be read.
fn clone3_program() -> Result<BpfProgram, FilterError> {
    program([(libc::SYS_clone3, Vec::new())].into(), ENOSYS)
}

fn bpf_program(uses_programs: bool) -> Result<BpfProgram, FilterError> {
    let rules = if uses_programs {
        let other_commands = BPF_COMMANDS
            .iter()
            .map(|command| condition(0, SeccompCmpOp::Ne, *command))
            .collect::<Result<_, _>>()?;
        vec![rule(other_commands)?]
    } else {
        Vec::new()
    };
    program([(libc::SYS_bpf, rules)].into(), EPERM)
}

const EPERM: u32 = libc::EPERM.unsigned_abs();
const ENOSYS: u32 = libc::ENOSYS.unsigned_abs();

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: u32) -> Result<BpfProgram, FilterError> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), architecture)?;
    Ok(filter.try_into()?)
}

fn rule(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions)
}

/// All that is compared are 32 bits wide: families, commands, flags, process ids.
fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    /// The error of what is refused on a thread that is confined; filters end with their thread.
    fn confined<T: Send + 'static>(attempt: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(|| {
            confine_from_the_start().unwrap();
            attempt()
        })
        .join()
        .unwrap()
    }

    #[test]
    fn no_program_is_started_and_no_process_made() {
        let error = confined(|| Command::new("/bin/true").status()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn namespaces_and_other_processes_are_out_of_reach() {
        let refused = confined(|| {
            let own = nix::unistd::Pid::this();
            [
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER),
                nix::sys::signal::kill(own, None),
                nix::unistd::chroot("/"),
            ]
        });
        assert_eq!(refused, [Err(nix::errno::Errno::EPERM); 3]);
    }

    #[test]
    fn what_the_sidecar_does_still_works() {
        confined(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            std::os::unix::net::UnixStream::pair().unwrap();
            netlink_sys::Socket::new(netlink_sys::protocols::NETLINK_SOCK_DIAG).unwrap();
            let folder = std::env::temp_dir().join(format!("ackbeat-sandbox-{}", std::process::id()));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("recording"), "line").unwrap();
            std::fs::rename(folder.join("recording"), folder.join("recording.1")).unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            std::fs::read_dir("/proc/self/fd").unwrap().count();
            // Threads, and with them a runtime.
            assert_eq!(std::thread::spawn(|| 7).join().unwrap(), 7);
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let look_up = runtime.block_on(async {
                tokio::spawn(async { tokio::net::lookup_host("localhost:80").await.map(Iterator::count) })
                    .await
            });
            assert!(look_up.unwrap().unwrap() > 0);
            runtime.shutdown_timeout(std::time::Duration::from_secs(30));
        });
    }

    #[test]
    fn other_kinds_of_sockets_are_refused() {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
        let refused =
            confined(|| socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).map(drop));
        assert_eq!(refused, Err(nix::errno::Errno::EPERM));
    }

    #[test]
    fn every_filter_is_a_program() {
        for uses_programs in [true, false] {
            assert!(!bpf_program(uses_programs).unwrap().is_empty());
        }
    }
}
