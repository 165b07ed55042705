//! Detection of `mpirun` from its environment variables, before MPI starts.

use std::process::Command;

use crate::terminal::mute;

/// The variables of rank and size, as set by Open MPI, by MPICH and its derivatives, and by Slurm with PMIx.
const VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
];

/// The prefixes of all variables that a launcher sets.
const PREFIXES: [&str; 3] = ["OMPI_", "PMIX_", "PMI_"];

/// Removes the launcher's variables from the environment of a child process, which is not a worker.
pub fn without_launcher(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            command.env_remove(name);
        }
    }
}

/// Returns the rank of this process and the number of processes, if a launcher has set them.
fn rank_and_size() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    VARIABLES.iter().find_map(|(rank, count)| Some((number(rank)?, number(count)?)))
}

/// Mutes every process started by `mpirun` except the first; returns true if this process is muted. A build without MPI
/// ignores the variables of a launcher, because they may be left over from another program.
pub fn mute_all_but_first() -> bool {
    let is_muted = cfg!(feature = "mpi") && rank_and_size().is_some_and(|(rank, _)| rank > 0);
    if is_muted {
        mute();
    }
    is_muted
}

/// Returns the number of processes that `mpirun` started, or `None` if it did not start this one.
pub(super) fn count() -> Option<usize> {
    rank_and_size().map(|(_, count)| count)
}

/// Returns the name of the rank variable that is set.
#[cfg(not(feature = "mpi"))]
pub(super) fn variable() -> &'static str {
    VARIABLES
        .iter()
        .map(|&(rank, _)| rank)
        .find(|rank| std::env::var_os(rank).is_some())
        .unwrap_or("PMI_RANK")
}
