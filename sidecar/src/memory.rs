//! Memory that was needed once goes back to the kernel.

/// Gives pages that the allocator keeps and nothing lies on back to the kernel (`malloc_trim(3)`, glibc; elsewhere nothing
/// happens). By itself glibc returns only what is free at the end of the heap, and there something small always stays.
///
/// Worth its milliseconds after the start: the kernel's types are read twice there, and take some 8 MB that nobody needs
/// again.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes no pointer, may be called from every thread, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
