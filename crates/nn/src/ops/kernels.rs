//! The choice between fused and reference operations.

use std::{cell::Cell, thread::LocalKey};

use serde::{Deserialize, Serialize};

use crate::choices;

choices! {
    /// The implementation of the expensive operations.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Kernels {
        /// The fused kernels of this project where they support the backend, otherwise Burn's operations.
        #[default]
        Fused,
        /// Burn's operations one after another, as a reference.
        Reference,
    }
}

thread_local! {
    static KERNELS: Cell<Kernels> = const { Cell::new(Kernels::Fused) };
}

/// Returns the implementation of the calling thread's operations.
pub fn kernels() -> Kernels {
    KERNELS.get()
}

impl Kernels {
    /// Runs `work` with this implementation of the operations on this thread.
    ///
    /// A gradient is computed by the implementation of its operation, no matter when and on which thread.
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
        let within = Kernels::Reference
            .run(|| Kernels::Fused.run(kernels) == Kernels::Fused && kernels() == Kernels::Reference);
        assert!(within);
        let panicked = std::panic::catch_unwind(|| Kernels::Reference.run(|| panic!("on purpose")));
        assert!(panicked.is_err());
        assert_eq!(kernels(), Kernels::Fused);
    }
}
