//! The program `causal-attention`: see `causal-attention --help`.

use causal_attention::kernels::allocator::WholeLines;

#[global_allocator]
static ALLOCATOR: WholeLines = WholeLines;

fn main() -> std::process::ExitCode {
    causal_attention::cli::main()
}
