//! What the system's allocator does with the memory of a step, for the GNU allocator; others are left as they
//! are (`mallopt(3)`).
//!
//! By itself it gives each thread a store of its own, in parts of 64 MB that go back to the system as soon as
//! they are empty, and gives back what lies free at a store's end: a step whose tensors come and go there has
//! fresh pages cleared each time.

/// Lets threads that start later share the store of those that run. Kernels take their buffers from the
/// [pool](super::pool) and ask the allocator seldom, so nobody waits for another.
pub fn share_one_store() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    set(libc::M_ARENA_MAX, 1);
}

/// Keeps what a step frees for the next one, which needs the same again.
///
/// What is there for good, as the weights, is better allocated before: among what comes and goes it would
/// leave gaps.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // Up to the largest piece that the allocator's own store may have.
        set(libc::M_MMAP_THRESHOLD, 32 << 20);
        set(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(parameter: i32, value: i32) {
    // SAFETY: `mallopt` takes two numbers and a lock of its own; a value that it does not know it refuses.
    unsafe { libc::mallopt(parameter, value) };
}
