//! Fast paths of `causal-attention` for CPUs: plain slices in, plain slices out.
//!
//! They are a crate of their own so that the compiler optimises them as one unit, and once.
//!
//! Each family of operations has a forward function and a backward one that states what the forward pass
//! must leave for it. Outputs are overwritten, whatever they held; lengths that do not fit are a
//! programmer's error and panic. Numbers are `f32`, matrices lie row by row.
//!
//! | module | operation |
//! |---|---|
//! | [`attention`] | attention from packed or separate queries, keys and values, linear in memory |
//! | [`linear`] | `x W + b`, fused with an [`activation`], with a gate, or with dropout and the residual addition |
//! | [`feed_forward`] | two linear layers with an activation or a gate between them |
//! | [`norm`] | layer norm and RMS norm |
//! | [`loss`] | cross-entropy with ignored targets and label smoothing |
//! | [`embedding`] | token embedding with learned positions |
//! | [`dropout`] | dropout whose mask is computed again instead of being stored |
//! | [`optimizer`] | AdamW with clipping by the global norm |
//! | [`muon`] | Muon, which makes the momentum of a matrix orthogonal |
//!
//! Below them lie vector code for every instruction set from one body (`vector`, `math`), matrix products
//! (`matmul`: by the `gemm` crate; `bf16`: of rounded factors) over views of slices ([`matrix`]), work in pieces
//! (`parallel`, [`team`]) and buffers that are used again ([`pool`], [`allocator`]).
//!
//! # Same bits on any number of threads
//! Work is cut into pieces by shape alone, or where cuts change no bit, and sums are taken in a fixed order, so the
//! threads of the current [team], or else of the current rayon pool, decide how fast a kernel runs and never what it
//! computes. Another processor may round differently: it may have another instruction set.
//!
//! # Checking the `unsafe` code
//! It stands in [`matrix`], whose views divide a slice between threads, in [`team`], which lends them work that lives
//! on the stack, in `matmul`, which hands their addresses to `gemm`, in `bf16`, which calls instructions and asks
//! Linux for the matrix unit, and in [`allocator`], which gives out the system's memory. Two runs of the tests look
//! for what can go wrong there:
//!
//! - `cargo test -p causal-attention-kernels`, in the profile for development: with debug assertions and
//!   overflow checks. [`INSTRUCTION_SET_VARIABLE`] takes them to the smaller instruction sets.
//! - `tests/valgrind.sh`, in ten minutes: no number is read beyond an allocation, or from memory that nobody
//!   wrote. What the pool hands out again somebody wrote; there every test finds NaN.
//!
//! Neither sees into the assembly of the matrix unit, and valgrind knows no AVX-512: what those compute is compared
//! with definitions alone.
#![deny(missing_docs)]

#[cfg(test)]
extern crate self as causal_attention_kernels;

pub mod activation;
pub mod allocator;
pub mod attention;
mod bf16;
pub mod dropout;
pub mod embedding;
pub mod feed_forward;
mod few_rows;
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
pub use vector::{INSTRUCTION_SET_VARIABLE, asked_instruction_set};

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::INSTRUCTION_SET_VARIABLE;

    #[test]
    fn all_tests_pass_on_smaller_instruction_sets_too() {
        if std::env::var_os(INSTRUCTION_SET_VARIABLE).is_some() {
            return; // this is one of the processes started below
        }
        for set in ["avx512", "avx2", "portable"] {
            let tests = std::env::current_exe().expect("the path of the tests");
            let run = Command::new(tests).env(INSTRUCTION_SET_VARIABLE, set).output();
            let run = run.expect("a process with the tests");
            let report = String::from_utf8_lossy(&run.stdout);
            assert!(run.status.success(), "on {set}:\n{report}");
            assert!(report.contains("short_sequences_agree_with_the_textbook ... ok"), "on {set}:\n{report}");
        }
    }
}
