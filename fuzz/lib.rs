//! Runs the readers of `formats` in libFuzzer, and limits the memory that an input allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{self, AssertUnwindSafe};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

pub use libfuzzer_sys::fuzz_target;

pub mod formats;

/// Defines a fuzzer of a function in [`formats`].
#[macro_export]
macro_rules! fuzz {
    ($format:ident) => {
        $crate::fuzz_target!(|bytes: &[u8]| $crate::limited(bytes, $crate::formats::$format));
    };
}

/// Memory that an allocation takes regardless of the size of the input, such as the buffer of a reader, or a table with
/// 8 bytes per Unicode code point.
const FIXED: usize = 10 << 20;
const PER_BYTE: usize = 10;

/// The message of the last panic.
static LAST: Mutex<String> = Mutex::new(String::new());

/// The size of the largest allocation for an input.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Recording;

#[global_allocator]
static ALLOCATOR: Recording = Recording;

// SAFETY: every call is passed to the allocator of the system.
unsafe impl GlobalAlloc for Recording {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Calls a reader with an input. Aborts if it panics, or if its largest allocation exceeds 10 bytes per byte of the input
/// plus 10 MiB.
pub fn limited(bytes: &[u8], read: impl Fn(&[u8])) {
    // The hook of libFuzzer would abort at panics in a library that the program catches.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        panic::set_hook(Box::new(|panic| *LAST.lock().expect("no panic holds it") = panic.to_string()))
    });
    LARGEST.store(0, Ordering::Relaxed);
    if panic::catch_unwind(AssertUnwindSafe(|| read(bytes))).is_err() {
        eprintln!("{}", LAST.lock().expect("no panic holds it"));
        process::abort();
    }
    let (largest, limit) = (LARGEST.load(Ordering::Relaxed), PER_BYTE * bytes.len() + FIXED);
    if largest > limit {
        eprintln!("{} bytes of input allocated {largest} bytes at once", bytes.len());
        process::abort();
    }
}
