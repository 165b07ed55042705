//! Where the numbers of a step lie, and what the system's allocator does with their memory, for the GNU allocator; others
//! are left as they are (`mallopt(3)`).
//!
//! By itself that gives each thread a store of its own, in parts of 64 MB that go back to the system as soon as
//! they are empty, and gives back what lies free at a store's end: a step whose tensors come and go there has
//! fresh pages cleared each time.

use std::alloc::{GlobalAlloc, Layout, System};

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

/// The system's allocator, of which what is larger than a page begins at a cache line: registers that are as wide then
/// read and write one line, not parts of two. A program takes it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct WholeLines;

const PAGE: usize = 4_096;
const LINE: usize = 64;

/// What the system is asked for so that a cache line begins within it, behind room for the distance to that; none for
/// what stays as it is.
fn with_room(layout: Layout) -> Option<Layout> {
    let is_large = layout.size() >= PAGE && layout.align() <= size_of::<usize>();
    let size = layout.size().checked_add(LINE).filter(|_| is_large)?;
    Layout::from_size_align(size, size_of::<usize>()).ok()
}

/// The first cache line of which a word in front belongs to the piece as well.
///
/// # Safety
/// The piece must have a [`LINE`] more than is asked of it, unless it is null.
unsafe fn first_line(piece: *mut u8) -> *mut u8 {
    if piece.is_null() {
        return piece;
    }
    let distance = LINE - piece.addr() % LINE;
    // SAFETY: a piece begins at a word, so at least one lies before the next line, and at most a line does.
    unsafe {
        let line = piece.add(distance);
        line.cast::<usize>().sub(1).write(distance);
        line
    }
}

// SAFETY: the system's allocator, of whose pieces the part from their first cache line on is as long as was asked for.
unsafe impl GlobalAlloc for WholeLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises, and with room.
        unsafe {
            match with_room(layout) {
                Some(layout) => first_line(System.alloc(layout)),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            match with_room(layout) {
                Some(layout) => first_line(System.alloc_zeroed(layout)),
                None => System.alloc_zeroed(layout),
            }
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the piece came with this layout from one of the above, which wrote its distance.
        unsafe {
            match with_room(layout) {
                Some(layout) => System.dealloc(place.sub(place.cast::<usize>().sub(1).read()), layout),
                None => System.dealloc(place, layout),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_begin_at_a_cache_line_and_small_ones_stay_as_they_are() {
        for size in [1, 8, 4_095, 4_096, 4_097, 100_000, 40_000_000] {
            for layout in [4, 8, 64].map(|align| Layout::from_size_align(size, align).unwrap()) {
                // SAFETY: the pieces are as long as they are asked for, and go back with their layouts.
                unsafe {
                    let pieces = [WholeLines.alloc(layout), WholeLines.alloc_zeroed(layout)];
                    assert!((0..size).all(|at| *pieces[1].add(at) == 0));
                    for (piece, value) in pieces.into_iter().zip([1, 2]) {
                        assert!(size < PAGE || piece.addr().is_multiple_of(LINE), "{layout:?}");
                        piece.write_bytes(value, size);
                    }
                    let grown = WholeLines.realloc(pieces[0], layout, size + 5_000);
                    assert!((0..size).all(|at| *grown.add(at) == 1 && *pieces[1].add(at) == 2));
                    WholeLines.dealloc(grown, Layout::from_size_align(size + 5_000, layout.align()).unwrap());
                    WholeLines.dealloc(pieces[1], layout);
                }
            }
        }
    }
}
