//! The program `causal-attention`: see `causal-attention --help`.

fn main() -> std::process::ExitCode {
    causal_attention::cli::main()
}
