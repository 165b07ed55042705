//! Memory allocation for training steps: settings of the GNU allocator (`mallopt(3)`), and an allocator that aligns
//! large allocations to cache lines. Other system allocators keep their settings.
//!
//! By default, the GNU allocator gives each thread a separate arena, in heaps of 64 MB. Empty heaps and free memory at
//! the top of an arena return to the system at once. The tensors of every step would then be allocated in fresh pages,
//! which the system zeroes each time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Lets threads that start later share the existing arena. Kernels take their buffers from the [pool](super::pool) and
/// seldom call the allocator, so contention is low.
pub fn share_one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    set(libc::M_ARENA_MAX, 1);
}

/// Keeps the memory that a step frees for the next step, which needs the same amount again.
///
/// Allocate long-lived data such as the weights before this call: among short-lived tensors, they would fragment the
/// memory.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // The largest threshold that glibc accepts.
        set(libc::M_MMAP_THRESHOLD, 32 << 20);
        set(libc::M_TRIM_THRESHOLD, i32::MAX);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn set(parameter: i32, value: i32) {
    // SAFETY: `mallopt` takes two numbers, acquires a lock, and rejects unknown values.
    unsafe { libc::mallopt(parameter, value) };
}

/// The callback for an allocation that the system refuses.
static ON_EXHAUSTION: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// True while this thread can handle a failed allocation.
    static IS_FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Sets the callback for an allocation of [`LineAlignedAllocator`] that the system refuses. The callback may exit
/// the program, which the standard library would otherwise abort, and must not allocate. Only the first call has an
/// effect.
pub fn on_exhaustion(callback: fn()) {
    let _ = ON_EXHAUSTION.set(callback);
}

/// Runs work that can handle a failed allocation: the callback of [`on_exhaustion`] is not called.
pub fn fallible<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_FALLIBLE.replace(true);
    let result = work();
    IS_FALLIBLE.set(before);
    result
}

/// Returns an allocation of the system; if it is null, calls the callback of [`on_exhaustion`] first.
fn checked(allocation: *mut u8) -> *mut u8 {
    if allocation.is_null() && !IS_FALLIBLE.try_with(Cell::get).unwrap_or(true) {
        ON_EXHAUSTION.get().inspect(|callback| callback());
    }
    allocation
}

/// The system's allocator, with allocations of a page or more aligned to cache lines. Vector loads as wide as a
/// line then never cross a line boundary.
///
/// Allocations with an alignment of two lines, which `gemm` requests for the packed factors of each product, are cached
/// per thread for the next product. Threads that use the shared arena at the same time would block each other.
/// A program installs this type as its `#[global_allocator]`.
#[derive(Debug)]
pub struct LineAlignedAllocator;

const PAGE: usize = 4_096;
const LINE: usize = 64;

thread_local! {
    /// The freed allocations cached by this thread, indexed by size class.
    static CACHED: Cache = const { Cache([const { Cell::new(null_mut()) }; CLASSES]) };
}

/// One slot per size class. The classes are [`PAGE`] bytes times powers of two.
struct Cache([Cell<*mut u8>; CLASSES]);

/// The number of size classes; the largest holds 32 MB.
const CLASSES: usize = 14;

impl Drop for Cache {
    fn drop(&mut self) {
        for (class, cached) in self.0.iter().enumerate().filter(|(_, cached)| !cached.get().is_null()) {
            // SAFETY: the allocation came from the system with the layout of its class.
            unsafe {
                System.dealloc(cached.get(), Layout::from_size_align_unchecked(PAGE << class, 2 * LINE));
            };
        }
    }
}

/// Returns the size class and the layout of the class if an allocation is cached when it is freed.
fn class(layout: Layout) -> Option<(usize, Layout)> {
    if layout.align() != 2 * LINE || layout.size() < PAGE {
        return None;
    }
    let class = layout.size().div_ceil(PAGE).next_power_of_two().ilog2() as usize;
    let layout = Layout::from_size_align(PAGE << class, layout.align()).ok()?;
    (class < CLASSES).then_some((class, layout))
}

/// Returns the layout to request from the system for an allocation that is aligned to a cache line, with a word before
/// it for the distance from the start; `None` for allocations that need no alignment.
fn padded_layout(layout: Layout) -> Option<Layout> {
    let is_large = layout.size() >= PAGE && layout.align() <= LINE;
    let size = layout.size().checked_add(LINE).filter(|_| is_large)?;
    Layout::from_size_align(size, size_of::<usize>()).ok()
}

/// Returns the first cache line of an allocation, and stores its distance from the start in the word before it.
///
/// # Safety
/// The allocation must be null or [`LINE`] bytes longer than requested.
unsafe fn first_line(allocation: *mut u8) -> *mut u8 {
    if allocation.is_null() {
        return allocation;
    }
    let distance = LINE - allocation.addr() % LINE;
    // SAFETY: an allocation begins at a word, so at least one word and at most a line precede the next line.
    unsafe {
        let line = allocation.add(distance);
        line.cast::<usize>().sub(1).write(distance);
        line
    }
}

/// Reads the distance written by [`first_line`].
///
/// # Safety
/// The address must come from [`first_line`].
unsafe fn distance(address: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { address.cast::<usize>().sub(1).read() }
}

// SAFETY: each address is an allocation of the system or the first cache line inside a padded one. At least the
// requested number of bytes follow it. A cached allocation is not in use.
unsafe impl GlobalAlloc for LineAlignedAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some((class, layout)) = class(layout) {
            let cached = CACHED.try_with(|cached| cached.0[class].replace(null_mut())).unwrap_or(null_mut());
            // SAFETY: the size of a class is not zero.
            return if cached.is_null() { checked(unsafe { System.alloc(layout) }) } else { cached };
        }
        // SAFETY: as the caller promises; the layout includes an additional line.
        unsafe {
            match padded_layout(layout) {
                Some(layout) => first_line(checked(System.alloc(layout))),
                None => checked(System.alloc(layout)),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class(layout).is_some() {
            // SAFETY: the allocation is as long as requested.
            return unsafe {
                let allocation = self.alloc(layout);
                if !allocation.is_null() {
                    allocation.write_bytes(0, layout.size());
                }
                allocation
            };
        }
        // SAFETY: as above.
        unsafe {
            match padded_layout(layout) {
                Some(layout) => first_line(checked(System.alloc_zeroed(layout))),
                None => checked(System.alloc_zeroed(layout)),
            }
        }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if let Some((class, layout)) = class(layout) {
            let surplus = CACHED.try_with(|cached| cached.0[class].replace(address)).unwrap_or(address);
            if !surplus.is_null() {
                // SAFETY: the allocation came from the system with the layout of its class.
                unsafe { System.dealloc(surplus, layout) };
            }
            return;
        }
        // SAFETY: the allocation came with this layout from one of the other functions.
        unsafe {
            match padded_layout(layout) {
                Some(layout) => System.dealloc(address.sub(distance(address)), layout),
                None => System.dealloc(address, layout),
            }
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: as the caller promises. If the system moves a large allocation to another distance from a cache line,
        // its content is moved, too.
        unsafe {
            match [padded_layout(layout), padded_layout(new_layout)] {
                [None, None] if class(layout).or(class(new_layout)).is_none() => {
                    checked(System.realloc(address, layout, size))
                }
                [Some(layout), Some(new_layout)] => {
                    let old_distance = distance(address);
                    let moved = checked(System.realloc(address.sub(old_distance), layout, new_layout.size()));
                    let new_distance = LINE - moved.addr() % LINE;
                    if !moved.is_null() && new_distance != old_distance {
                        let length = (layout.size() - LINE).min(size);
                        std::ptr::copy(moved.add(old_distance), moved.add(new_distance), length);
                    }
                    first_line(moved)
                }
                [_, _] => {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(address, new, layout.size().min(size));
                        self.dealloc(address, layout);
                    }
                    new
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reallocation_keeps_contents_and_cache_line_alignment() {
        let sizes = [1, 8, 4_095, 4_096, 4_097, 100_000, 40_000_000];
        for (size, align) in
            sizes.into_iter().flat_map(|size| [4, 8, 16, 32, 64, 128].map(|align| (size, align)))
        {
            let layout = Layout::from_size_align(size, align).unwrap();
            for new_size in [1, 3_000, 4_096, 5_000, 90_001, 41_000_001] {
                // SAFETY: the allocations are as long as requested, and are freed with their layouts.
                unsafe {
                    let allocation = LineAlignedAllocator.alloc(layout);
                    let zeros = LineAlignedAllocator.alloc_zeroed(layout);
                    assert!([allocation, zeros].iter().all(|address| address.addr().is_multiple_of(align)));
                    assert!(size < PAGE || allocation.addr().is_multiple_of(LINE), "{layout:?}");
                    for at in 0..size {
                        allocation.add(at).write(at as u8);
                    }
                    let new = LineAlignedAllocator.realloc(allocation, layout, new_size);
                    assert!(new.addr().is_multiple_of(if new_size < PAGE { align } else { align.max(LINE) }));
                    assert!(
                        (0..size.min(new_size)).all(|at| *new.add(at) == at as u8),
                        "{layout:?} {new_size}"
                    );
                    assert!((0..size).all(|at| *zeros.add(at) == 0));
                    LineAlignedAllocator.dealloc(new, Layout::from_size_align(new_size, align).unwrap());
                    LineAlignedAllocator.dealloc(zeros, layout);
                }
            }
        }
    }

    #[test]
    fn threads_reuse_their_freed_packing_buffers() {
        let layout = |size| Layout::from_size_align(size, 2 * LINE).unwrap();
        // SAFETY: as above.
        unsafe {
            let first = LineAlignedAllocator.alloc(layout(5_000));
            let address = first.addr();
            LineAlignedAllocator.dealloc(first, layout(5_000));
            let elsewhere = std::thread::spawn(move || {
                let other = LineAlignedAllocator.alloc(layout(8_192));
                let is_another = other.addr() != address;
                LineAlignedAllocator.dealloc(other, layout(8_192));
                is_another
            });
            assert!(elsewhere.join().unwrap(), "another thread has another cache");
            let again = LineAlignedAllocator.alloc(layout(8_192));
            assert_eq!(again.addr(), address, "both sizes have the class of two pages");
            LineAlignedAllocator.dealloc(again, layout(8_192));
            assert!(class(layout(4_095)).is_none() && class(layout(1 << 26)).is_none());
            assert!(class(Layout::from_size_align(5_000, LINE).unwrap()).is_none());
        }
    }
}
