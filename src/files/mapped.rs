//! Large files, mapped into memory.
//!
//! A file that another program cuts short while it is mapped makes the system send SIGBUS to whoever reads what is gone.
//! A handler then ends this program with one line and exit code 2; of all other memory the signal means what it meant.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// A mapped file.
#[derive(Debug)]
pub struct Mapped {
    #[cfg(unix)]
    _watched: Option<watch::Watched>,
    map: Mmap,
}

impl Mapped {
    /// Maps a file, which errors call `path`.
    ///
    /// # Errors
    /// If the system refuses.
    #[cfg_attr(not(unix), expect(unused_variables, reason = "only Unix sends SIGBUS"))]
    pub fn new(file: &File, path: &Path) -> io::Result<Self> {
        // SAFETY: a weights file is replaced whole by a rename, never written in place, by this program; where another
        // one cuts it short, the handler ends this one.
        let map = unsafe { Mmap::map(file) }?;
        Ok(Self {
            #[cfg(unix)]
            _watched: watch::Watched::new(&map, path),
            map,
        })
    }

    /// The map itself.
    pub fn map(&self) -> &Mmap {
        &self.map
    }
}

impl Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(unix)]
mod watch {
    use std::ffi::c_void;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use libc::{c_int, siginfo_t};

    use crate::terminal::error_line;

    /// The most maps at a time whose end is told: more than a model has files.
    const MAX_MAPS: usize = 256;

    /// A map that the handler knows. `end` is 0 where the slot is free.
    struct Slot {
        start: AtomicUsize,
        end: AtomicUsize,
        line: AtomicPtr<String>,
    }

    static SLOTS: [Slot; MAX_MAPS] = [const {
        Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), line: AtomicPtr::new(null_mut()) }
    }; MAX_MAPS];

    /// What SIGBUS did before.
    static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

    /// Keeps a map known to the handler.
    #[derive(Debug)]
    pub struct Watched(usize);

    impl Watched {
        /// None where all slots are taken.
        pub fn new(map: &[u8], path: &Path) -> Option<Self> {
            PREVIOUS.get_or_init(install);
            let start = map.as_ptr().addr();
            let free = |slot: &Slot| {
                let taken = slot.end.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
                taken.is_ok()
            };
            let index = SLOTS.iter().position(free)?;
            let line = error_line(&format!(
                "{}: became shorter while it was read: wait until it is whole, then try again",
                path.display()
            ));
            let slot = &SLOTS[index];
            slot.line.store(Box::into_raw(Box::new(line + "\n")), Ordering::Release);
            slot.start.store(start, Ordering::Release);
            slot.end.store(start + map.len(), Ordering::Release);
            Some(Self(index))
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            let slot = &SLOTS[self.0];
            slot.start.store(usize::MAX, Ordering::Release);
            let line = slot.line.swap(null_mut(), Ordering::AcqRel);
            slot.end.store(0, Ordering::Release);
            if !line.is_null() {
                // SAFETY: it came from a box, and nobody reads it: the map that it speaks of is no longer read.
                drop(unsafe { Box::from_raw(line) });
            }
        }
    }

    fn install() -> libc::sigaction {
        // SAFETY: a zeroed action is a valid one, and both are as long as the system expects.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut previous: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = told;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, &mut previous);
            previous
        }
    }

    /// Ends the program with the line of the map that the address lies in. All that is called here may be called in a
    /// signal handler.
    extern "C" fn told(signal: c_int, information: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: the system hands over a valid pointer.
        let address = unsafe { (*information).si_addr() }.addr();
        for slot in &SLOTS {
            let lies_in =
                (slot.start.load(Ordering::Acquire)..slot.end.load(Ordering::Acquire)).contains(&address);
            let line = slot.line.load(Ordering::Acquire);
            // SAFETY: a line lives as long as its map, which is being read.
            if lies_in && let Some(line) = unsafe { line.as_ref() } {
                // SAFETY: the line is as long as it says, and neither call allocates.
                unsafe {
                    libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
                    libc::_exit(2);
                }
            }
        }
        // The fault comes again, and finds what was there before.
        // SAFETY: the action came from the system; before it is known, the default takes its place.
        unsafe {
            match PREVIOUS.get() {
                None => _ = libc::signal(signal, libc::SIG_DFL),
                Some(previous) => _ = libc::sigaction(signal, previous, null_mut()),
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "CAUSAL_ATTENTION_TEST_SHRINKS";

    /// The part that runs in a process of its own.
    fn shrink(path: &Path) -> ! {
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        let other = Mapped::new(&File::open(std::env::current_exe().unwrap()).unwrap(), path).unwrap();
        drop(other);
        let map = Mapped::new(&file, path).unwrap();
        file.set_len(4096).unwrap();
        std::process::exit(i32::from(map[1 << 19]));
    }

    #[test]
    fn a_file_that_shrinks_ends_in_one_line() {
        if let Some(path) = std::env::var_os(CHILD) {
            shrink(path.as_ref());
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("weights");
        std::fs::write(&path, "").unwrap();
        let test = "files::mapped::tests::a_file_that_shrinks_ends_in_one_line";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", test, "--nocapture"]).env(CHILD, &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let expected = format!("error: {}: became shorter while it was read", path.display());
        assert!(said.starts_with(&expected) && said.lines().count() == 1, "{said}");
    }
}
