//! Where the numbers of a step lie in memory, and what the GNU allocator does with it (`mallopt(3)`); other allocators
//! are left as they are.
//!
//! By itself the GNU allocator gives each thread a store of its own, in parts of 64 MB that go back to the system as
//! soon as they are empty, and gives back what lies free at a store's end: a step whose tensors come and go there has
//! fresh pages cleared each time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;

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

/// What is called where the system gives no more memory.
static EXHAUSTED: OnceLock<fn()> = OnceLock::new();

thread_local! {
    /// Whether this thread can do without the memory that it asks for.
    static IS_FALLIBLE: Cell<bool> = const { Cell::new(false) };
}

/// Calls `end` where the system gives [`WholeLines`] no more memory. It may end the program, which the standard library
/// would abort, and must not allocate. The first one counts.
pub fn on_exhaustion(end: fn()) {
    let _ = EXHAUSTED.set(end);
}

/// Does work that can do without the memory that it asks for: what [`on_exhaustion`] set is not called.
pub fn fallible<T>(work: impl FnOnce() -> T) -> T {
    let before = IS_FALLIBLE.replace(true);
    let done = work();
    IS_FALLIBLE.set(before);
    done
}

/// A piece that the system gave, or null once that was told.
fn told(piece: *mut u8) -> *mut u8 {
    if piece.is_null() && !IS_FALLIBLE.try_with(Cell::get).unwrap_or(true) {
        EXHAUSTED.get().inspect(|end| end());
    }
    piece
}

/// The system's allocator, of which what fills a page begins at a cache line: registers that are as wide then
/// read and write one line, not parts of two. What is asked for with two lines' alignment, as each of `gemm`'s products
/// does for its packed factors, a thread keeps for its next product: threads that ask the one store at the same time put
/// each other to sleep. A program takes it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct WholeLines;

const PAGE: usize = 4_096;
const LINE: usize = 64;

thread_local! {
    /// The pieces that this thread keeps, by their class.
    static KEPT: Kept = const { Kept([const { Cell::new(null_mut()) }; CLASSES]) };
}

/// A piece of [`PAGE`] bytes, of twice as many, and so on, up to those of the largest class.
struct Kept([Cell<*mut u8>; CLASSES]);

/// The largest is 32 MB.
const CLASSES: usize = 14;

impl Drop for Kept {
    fn drop(&mut self) {
        for (class, piece) in self.0.iter().enumerate().filter(|(_, piece)| !piece.get().is_null()) {
            // SAFETY: it came from the system with the layout of its class.
            unsafe {
                System.dealloc(piece.get(), Layout::from_size_align_unchecked(PAGE << class, 2 * LINE))
            };
        }
    }
}

/// The class of a piece that its thread keeps when it is freed, and the layout of all pieces of the class.
fn class(layout: Layout) -> Option<(usize, Layout)> {
    if layout.align() != 2 * LINE || layout.size() < PAGE {
        return None;
    }
    let class = layout.size().div_ceil(PAGE).next_power_of_two().ilog2() as usize;
    let layout = Layout::from_size_align(PAGE << class, layout.align()).ok()?;
    (class < CLASSES).then_some((class, layout))
}

/// What the system is asked for so that a cache line begins within it, behind room for the distance to that; none for
/// what stays as it is.
fn with_room(layout: Layout) -> Option<Layout> {
    let is_large = layout.size() >= PAGE && layout.align() <= LINE;
    let size = layout.size().checked_add(LINE).filter(|_| is_large)?;
    Layout::from_size_align(size, size_of::<usize>()).ok()
}

/// The first cache line of a piece in front of which a word belongs to the piece as well: that holds the distance.
///
/// # Safety
/// The piece must have a [`LINE`] more than is asked of it, unless it is null.
unsafe fn first_line(piece: *mut u8) -> *mut u8 {
    if piece.is_null() {
        return piece;
    }
    let distance = LINE - piece.addr() % LINE;
    // SAFETY: a piece begins at a word, so that at least a word lies before the next line, and at most a line.
    unsafe {
        let line = piece.add(distance);
        line.cast::<usize>().sub(1).write(distance);
        line
    }
}

/// What [`first_line`] wrote.
///
/// # Safety
/// The place must come from there.
unsafe fn distance(place: *mut u8) -> usize {
    // SAFETY: as the caller promises.
    unsafe { place.cast::<usize>().sub(1).read() }
}

// SAFETY: the system's allocator, of whose pieces the part from their first cache line on is as long as was asked for. A
// piece that is kept belongs to nobody.
unsafe impl GlobalAlloc for WholeLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some((class, layout)) = class(layout) {
            let kept = KEPT.try_with(|kept| kept.0[class].replace(null_mut())).unwrap_or(null_mut());
            // SAFETY: a class has bytes.
            return if kept.is_null() { told(unsafe { System.alloc(layout) }) } else { kept };
        }
        // SAFETY: as the caller promises, and with room.
        unsafe {
            match with_room(layout) {
                Some(layout) => first_line(told(System.alloc(layout))),
                None => told(System.alloc(layout)),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class(layout).is_some() {
            // SAFETY: the piece is as long as it is asked for.
            return unsafe {
                let piece = self.alloc(layout);
                if !piece.is_null() {
                    piece.write_bytes(0, layout.size());
                }
                piece
            };
        }
        // SAFETY: as above.
        unsafe {
            match with_room(layout) {
                Some(layout) => first_line(told(System.alloc_zeroed(layout))),
                None => told(System.alloc_zeroed(layout)),
            }
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if let Some((class, layout)) = class(layout) {
            let surplus = KEPT.try_with(|kept| kept.0[class].replace(place)).unwrap_or(place);
            if !surplus.is_null() {
                // SAFETY: it came from the system with the layout of its class.
                unsafe { System.dealloc(surplus, layout) };
            }
            return;
        }
        // SAFETY: the piece came with this layout from one of the others.
        unsafe {
            match with_room(layout) {
                Some(layout) => System.dealloc(place.sub(distance(place)), layout),
                None => System.dealloc(place, layout),
            }
        }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new_layout) = Layout::from_size_align(size, layout.align()) else {
            return null_mut();
        };
        // SAFETY: as the caller promises; large pieces keep their numbers where the system, which need not copy them,
        // puts the piece at another distance from a line.
        unsafe {
            match [with_room(layout), with_room(new_layout)] {
                [None, None] if class(layout).or(class(new_layout)).is_none() => {
                    told(System.realloc(place, layout, size))
                }
                [Some(layout), Some(new_layout)] => {
                    let old_distance = distance(place);
                    let piece = told(System.realloc(place.sub(old_distance), layout, new_layout.size()));
                    let new_distance = LINE - piece.addr() % LINE;
                    if !piece.is_null() && new_distance != old_distance {
                        let length = (layout.size() - LINE).min(size);
                        std::ptr::copy(piece.add(old_distance), piece.add(new_distance), length);
                    }
                    first_line(piece)
                }
                [_, _] => {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        std::ptr::copy_nonoverlapping(place, new, layout.size().min(size));
                        self.dealloc(place, layout);
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
    fn large_pieces_begin_at_a_cache_line_and_keep_their_numbers_as_they_grow_and_shrink() {
        let sizes = [1, 8, 4_095, 4_096, 4_097, 100_000, 40_000_000];
        for (size, align) in
            sizes.into_iter().flat_map(|size| [4, 8, 16, 32, 64, 128].map(|align| (size, align)))
        {
            let layout = Layout::from_size_align(size, align).unwrap();
            for new_size in [1, 3_000, 4_096, 5_000, 90_001, 41_000_001] {
                // SAFETY: the pieces are as long as they are asked for, and go back with their layouts.
                unsafe {
                    let (piece, zeros) = (WholeLines.alloc(layout), WholeLines.alloc_zeroed(layout));
                    assert!([piece, zeros].iter().all(|piece| piece.addr().is_multiple_of(align)));
                    assert!(size < PAGE || piece.addr().is_multiple_of(LINE), "{layout:?}");
                    for at in 0..size {
                        piece.add(at).write(at as u8);
                    }
                    let new = WholeLines.realloc(piece, layout, new_size);
                    assert!(new.addr().is_multiple_of(if new_size < PAGE { align } else { align.max(LINE) }));
                    assert!(
                        (0..size.min(new_size)).all(|at| *new.add(at) == at as u8),
                        "{layout:?} {new_size}"
                    );
                    assert!((0..size).all(|at| *zeros.add(at) == 0));
                    WholeLines.dealloc(new, Layout::from_size_align(new_size, align).unwrap());
                    WholeLines.dealloc(zeros, layout);
                }
            }
        }
    }

    #[test]
    fn a_thread_keeps_what_a_product_packed_its_factors_into_for_the_next_one() {
        let layout = |size| Layout::from_size_align(size, 2 * LINE).unwrap();
        // SAFETY: as above.
        unsafe {
            let first = WholeLines.alloc(layout(5_000));
            let place = first.addr();
            WholeLines.dealloc(first, layout(5_000));
            let elsewhere = std::thread::spawn(move || {
                let piece = WholeLines.alloc(layout(8_192));
                let is_another = piece.addr() != place;
                WholeLines.dealloc(piece, layout(8_192));
                is_another
            });
            assert!(elsewhere.join().unwrap(), "another thread has its own");
            let again = WholeLines.alloc(layout(8_192));
            assert_eq!(again.addr(), place, "both fill two pages");
            WholeLines.dealloc(again, layout(8_192));
            assert!(class(layout(4_095)).is_none() && class(layout(1 << 26)).is_none());
            assert!(class(Layout::from_size_align(5_000, LINE).unwrap()).is_none());
        }
    }
}
