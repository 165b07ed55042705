//! CPU kernels of `causal-attention`: plain slices in, plain slices out.
//!
//! The kernels are a separate crate, which the compiler optimises as one unit and only once.
//!
//! Most operations have a forward and a backward function; the backward function documents its inputs from the forward
//! pass. Outputs are overwritten regardless of their content. Mismatched lengths are programming errors and cause a
//! panic. Numbers are `f32`, matrices are row-major.
//!
//! | module | operation |
//! |---|---|
//! | [`attention`] | attention from packed or separate queries, keys and values, linear in memory |
//! | [`differential`] | queries of two maps per head, and the difference of their outputs |
//! | [`gate`] | sigmoid gates |
//! | [`linear`] | `x W + b`, fused with an [`activation`], with a gate, or with dropout and the residual addition |
//! | [`feed_forward`] | two linear layers with an activation or a gate between them |
//! | [`norm`] | layer norm and RMS norm |
//! | [`loss`] | cross-entropy with ignored targets and label smoothing |
//! | [`embedding`] | token embedding with learned positions |
//! | [`dropout`] | dropout with a mask that is recomputed instead of stored |
//! | [`optimizer`] | AdamW with clipping by the global norm |
//! | [`muon`] | Muon, which orthogonalises the momentum of a matrix |
//!
//! The kernels are built on portable vector code (`vector`, `math`), matrix products over views of slices (`matmul`
//! with the `gemm` crate, `bf16` with rounded factors, [`matrix`]), parallel loops (`parallel`, [`team`]) and reusable
//! buffers ([`pool`], [`allocator`]).
//!
//! # Bitwise reproducibility across thread counts
//! Only the shape decides how work is divided, unless the division changes no bit. Sums are computed in a fixed order.
//! Kernels run on the threads of the current [team], or of the current rayon pool without a team. The number of threads
//! affects the speed of a kernel, but never its results. Processors with different instruction sets may round
//! differently.
//!
//! # Checking the `unsafe` code
//! The `unsafe` code is in [`matrix`] (views that divide a slice between threads), [`team`] (work on a stack that other
//! threads borrow), `matmul` (addresses passed to `gemm`), `bf16` (intrinsics and the system call for the
//! matrix unit) and [`allocator`]. Two test runs check it:
//!
//! - `cargo test -p causal-attention-kernels`, in the development profile with debug assertions and overflow checks.
//!   [`INSTRUCTION_SET_VARIABLE`] selects the smaller instruction sets.
//! - `tests/valgrind.sh`, which takes ten minutes and detects reads outside an allocation or of uninitialised memory.
//!   Valgrind cannot detect reads of stale pool buffers, which tests fill with NaN instead.
//!
//! Neither run covers the assembly of the matrix unit, and valgrind does not support AVX-512. The results of both are
//! only compared with reference code.
#![deny(missing_docs)]

#[cfg(test)]
extern crate self as causal_attention_kernels;

pub mod activation;
pub mod allocator;
pub mod attention;
mod bf16;
pub mod differential;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
mod few_rows;
pub mod gate;
pub mod linear;
pub mod loss;
mod math;
mod matmul;
pub mod matrix;
pub mod muon;
pub mod norm;
pub mod optimizer;
mod parallel;
pub mod pool;
#[doc(hidden)]
pub mod random;
pub mod sums;
pub mod team;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod textbook;
mod vector;

pub use bf16::{amx::is_used as uses_amx, has_instructions as has_bf16_instructions, round};
pub use matmul::Precision;
pub use vector::{INSTRUCTION_SET_VARIABLE, UnknownInstructionSet, requested_instruction_set};

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::INSTRUCTION_SET_VARIABLE;

    #[test]
    fn all_tests_pass_on_smaller_instruction_sets() {
        if std::env::var_os(INSTRUCTION_SET_VARIABLE).is_some() {
            return; // this is one of the processes started below
        }
        // The slowest one first, all at the same time.
        let runs = ["portable", "avx2", "avx512"].map(|set| {
            let tests = std::env::current_exe().expect("the path of the tests");
            let mut run = Command::new(tests);
            run.env(INSTRUCTION_SET_VARIABLE, set).stdout(Stdio::piped()).stderr(Stdio::piped());
            (set, run.spawn().expect("a process with the tests"))
        });
        for (set, run) in runs {
            let run = run.wait_with_output().expect("the output of the tests");
            let report = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success(), "on {set}:\n{report}");
            assert!(report.contains("short_sequences_match_the_reference ... ok"), "on {set}:\n{report}");
        }
    }
}
