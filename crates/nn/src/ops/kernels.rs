//! The choice between fused and composed operations.

use std::{cell::Cell, thread::LocalKey};

use burn::tensor::backend::Backend;
use serde::{Deserialize, Serialize};

use super::host;

/// How the heavy operations are computed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kernels {
    /// By the project's own kernels where they serve the backend, else composed.
    #[default]
    Fused,
    /// By Burn's operations, one after another: for comparison, and for doubt.
    Composed,
}

thread_local! {
    static KERNELS: Cell<Kernels> = const { Cell::new(Kernels::Fused) };
}

/// Returns the form in which the calling thread's operations are computed.
pub fn kernels() -> Kernels {
    KERNELS.get()
}

/// Returns true if the kernels compute this thread's operations, which then share no state with other threads.
pub fn is_on_host<B: Backend>() -> bool {
    host::is_read::<B>() && kernels() == Kernels::Fused
}

impl Kernels {
    /// Runs `work` with its operations on this thread computed in this form.
    ///
    /// A gradient is computed in the form of its operation, no matter when and on which thread.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        choose(&KERNELS, self, work)
    }
}

/// Runs `work` with a choice set for this thread, and restores the previous choice even if `work` panics.
pub(super) fn choose<V: Copy + 'static, T>(
    choice: &'static LocalKey<Cell<V>>,
    value: V,
    work: impl FnOnce() -> T,
) -> T {
    struct Restore<V: Copy + 'static>(&'static LocalKey<Cell<V>>, V);
    impl<V: Copy> Drop for Restore<V> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let _restore = Restore(choice, choice.replace(value));
    work()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_choice_is_restored_even_after_panic() {
        let within = Kernels::Composed
            .run(|| Kernels::Fused.run(kernels) == Kernels::Fused && kernels() == Kernels::Composed);
        assert!(within);
        let panicked = std::panic::catch_unwind(|| Kernels::Composed.run(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(kernels(), Kernels::Fused);
    }
}
