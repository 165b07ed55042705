//! The program `causal-attention`: see `causal-attention --help`.

use causal_attention::kernels::allocator::LineAlignedAllocator;

#[global_allocator]
static ALLOCATOR: LineAlignedAllocator = LineAlignedAllocator;

fn main() -> std::process::ExitCode {
    causal_attention::cli::main()
}
