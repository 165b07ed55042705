//! Threads that stay awake between the kernels of a step.
//!
//! A step of a decoder runs hundreds of kernels, some of which take a few microseconds. Waking a sleeping thread takes
//! longer than such a kernel, and much longer in a virtual machine whose host has taken the core away. Members of a
//! team therefore spin for a while before they sleep, like threads of OpenMP. The leader does not wait for a sleeping
//! member; the other members do its share.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The time that a member spins before it sleeps, longer than the gap between two kernels of a step.
const SPIN_TIME: Duration = Duration::from_millis(5);

thread_local! {
    /// The team led by this thread, or null.
    static LED_TEAM: Cell<*const Team> = const { Cell::new(std::ptr::null()) };
    /// True while this thread runs work of a team.
    static IS_WORKING: Cell<bool> = const { Cell::new(false) };
}

/// The work that all members run at the same time. Its argument is the number of the thread.
type Work<'a> = dyn Fn(usize) + Sync + 'a;

/// The threads that work for a leader.
struct Team {
    /// The address of a `&Work`, valid while `is_open` is true.
    work: AtomicPtr<()>,
    /// True while members can join the work.
    is_open: AtomicBool,
    /// The number of the work, counted from the first, or `u64::MAX` once the team has ended.
    number: AtomicU64,
    /// The number of members that may join the work: the first ones.
    max_members: AtomicUsize,
    /// The number of members that may be running the work.
    inside: AtomicUsize,
    /// The panic of a member during the work.
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
    members: Vec<Member>,
}

#[derive(Default)]
struct Member {
    is_asleep: AtomicBool,
    thread: std::sync::OnceLock<Thread>,
}

/// Runs `work`; this thread and `threads - 1` more compute its kernels.
pub fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    /// The stack size of a program's main thread.
    const STACK_BYTES: usize = 8 << 20;
    if threads < 2 {
        return work();
    }
    let team = Arc::new(Team {
        work: AtomicPtr::default(),
        is_open: AtomicBool::new(false),
        number: AtomicU64::new(0),
        max_members: AtomicUsize::new(0),
        inside: AtomicUsize::new(0),
        panic: Mutex::new(None),
        members: (1..threads).map(|_| Member::default()).collect(),
    });
    for member in 0..team.members.len() {
        let team = team.clone();
        let name = format!("kernels-{}", member + 1);
        // If spawning fails, fewer threads compute the same results.
        let _ = thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(move || team.serve(member));
    }
    struct End<'a>(&'a Team, *const Team);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            LED_TEAM.set(self.1);
            self.0.number.store(u64::MAX, Ordering::SeqCst);
            self.0.members.iter().for_each(Member::wake);
        }
    }
    let _end = End(&team, LED_TEAM.replace(&raw const *team));
    work()
}

/// Applies `work` to each item and returns the results in order. One thread processes each item.
///
/// # Panics
/// Panics if `work` does.
pub fn map<I: Send, T: Send>(items: Vec<I>, work: impl Fn(I) -> T + Sync) -> Vec<T> {
    let mut results = items.iter().map(|_| None).collect::<Vec<_>>();
    let count = items.len();
    let remaining = Mutex::new(items.into_iter().zip(&mut results));
    let next = || remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
    run(count, &|_| {
        while let Some((item, result)) = next() {
            *result = Some(work(item));
        }
    });
    results.into_iter().map(|result| result.expect("every item is processed")).collect()
}

/// Returns the number of threads that compute the kernels called by this thread.
pub fn threads() -> usize {
    if IS_WORKING.get() {
        return 1;
    }
    led_team().map_or_else(rayon::current_num_threads, |team| team.members.len() + 1)
}

/// Returns true if this thread leads a team or runs the work of one.
pub(super) fn is_active() -> bool {
    IS_WORKING.get() || !LED_TEAM.get().is_null()
}

/// Runs `work` on up to `max_threads` threads, with the number of each thread: 0 for this thread, higher for members of
/// its team. Only members that join in time take part. Returns when all of them have finished.
pub(super) fn run(max_threads: usize, work: &Work) {
    match led_team() {
        Some(team) if !IS_WORKING.get() && max_threads > 1 => team.run(max_threads - 1, work),
        _ => work(0),
    }
}

fn led_team<'a>() -> Option<&'a Team> {
    // SAFETY: `with_threads` keeps the team alive while it is led.
    unsafe { LED_TEAM.get().as_ref() }
}

impl Team {
    fn run(&self, max_members: usize, work: &Work) {
        /// Closes the work, even after a panic, and waits for the members that joined.
        struct Close<'a>(&'a Team);
        impl Drop for Close<'_> {
            fn drop(&mut self) {
                self.0.is_open.store(false, Ordering::SeqCst);
                IS_WORKING.set(false);
                let mut rounds = 0_u32;
                while self.0.inside.load(Ordering::SeqCst) > 0 {
                    spin(&mut rounds);
                }
            }
        }
        let address: *const &Work = &raw const work;
        self.work.store(address.cast_mut().cast(), Ordering::SeqCst);
        self.max_members.store(max_members, Ordering::SeqCst);
        self.number.fetch_add(1, Ordering::SeqCst);
        self.is_open.store(true, Ordering::SeqCst);
        self.members.iter().take(max_members).for_each(Member::wake);
        IS_WORKING.set(true);
        let close = Close(self);
        work(0);
        drop(close);
        if let Some(panic) = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take() {
            resume_unwind(panic);
        }
    }

    /// Runs the loop of a member until the team ends.
    fn serve(&self, index: usize) {
        IS_WORKING.set(true);
        // Calls to rayon stay on this thread. If the pool cannot be built, they use the global pool.
        let _pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        let member = &self.members[index];
        let _ = member.thread.set(thread::current());
        let (mut last, mut rounds, mut spinning_since) = (0, 0, Instant::now());
        loop {
            match self.number.load(Ordering::SeqCst) {
                u64::MAX => return,
                number if number != last => {
                    if index >= self.max_members.load(Ordering::SeqCst) || self.join(index + 1) {
                        last = number;
                    }
                    (rounds, spinning_since) = (0, Instant::now());
                }
                _ if rounds & 0x3F == 0x3F && spinning_since.elapsed() > SPIN_TIME => {
                    member.is_asleep.store(true, Ordering::SeqCst);
                    if self.number.load(Ordering::SeqCst) == last {
                        thread::park();
                    }
                    member.is_asleep.store(false, Ordering::SeqCst);
                    (rounds, spinning_since) = (0, Instant::now());
                }
                _ => spin(&mut rounds),
            }
        }
    }

    /// Runs the work with a thread number if the work is open; returns false otherwise.
    fn join(&self, number: usize) -> bool {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let is_open = self.is_open.load(Ordering::SeqCst);
        if is_open {
            // SAFETY: while a member is inside and the work is open, the leader stays in `run`, which borrows the work.
            let work = unsafe { *self.work.load(Ordering::SeqCst).cast::<&Work>() };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(number))) {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
            }
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
        is_open
    }
}

impl Member {
    fn wake(&self) {
        if self.is_asleep.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

/// Spins once; every 64th round yields to other threads of this core.
fn spin(rounds: &mut u32) {
    *rounds = rounds.wrapping_add(1);
    if *rounds & 0x3F == 0 { thread::yield_now() } else { std::hint::spin_loop() }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn map_processes_each_item_once_in_order() {
        for threads in [1, 2, 3, 8] {
            let squares = with_threads(threads, || map((0..1000).collect(), |number: usize| number * number));
            assert!(squares.iter().enumerate().all(|(number, square)| number * number == *square));
        }
    }

    #[test]
    fn all_threads_work_and_nested_calls_are_sequential() {
        with_threads(3, || {
            assert_eq!(threads(), 3);
            let mut seen = HashSet::new();
            // The leader does not wait for sleeping threads, so it may take several rounds.
            while seen.len() < 3 {
                seen.extend(map((0..64).collect(), |_: usize| {
                    let is_member = LED_TEAM.get().is_null();
                    assert!(threads() == 1 && (!is_member || rayon::current_num_threads() == 1));
                    thread::sleep(Duration::from_micros(100));
                    thread::current().id()
                }));
            }
        });
        assert!(!is_active(), "the team ends when its work returns");
    }

    #[test]
    fn sleeping_members_wake_for_new_work() {
        with_threads(2, || {
            let start = Instant::now();
            loop {
                thread::sleep(2 * SPIN_TIME);
                let ids = map(vec![(); 8], |()| {
                    thread::sleep(Duration::from_millis(1));
                    thread::current().id()
                });
                if ids.into_iter().collect::<HashSet<_>>().len() == 2 {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(20), "the member does not wake");
            }
        });
    }

    #[test]
    fn panics_propagate_to_the_caller() {
        with_threads(4, || {
            for bad in [0, 63] {
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    map((0..64).collect(), |number: usize| assert!(number != bad, "on purpose"));
                }));
                assert!(panicked.is_err());
                assert_eq!(map(vec![1, 2], |number| number + 1), [2, 3], "the team continues");
            }
        });
    }
}
