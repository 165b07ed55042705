//! How a process learns that `mpirun` started it, before MPI says so.

use std::process::Command;

use crate::terminal::mute;

/// The number of this process and how many there are, as Open MPI and as MPICH and its kin tell them.
const VARIABLES: [(&str, &str); 3] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "SLURM_NTASKS"),
];

/// What the names begin with of all that a launcher says to a process.
const PREFIXES: [&str; 3] = ["OMPI_", "PMIX_", "PMI_"];

/// Has a child know nothing of the launcher of this process: it is no worker.
pub fn without_launcher(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes())) {
            command.env_remove(name);
        }
    }
}

fn said() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    VARIABLES.iter().find_map(|(rank, count)| Some((number(rank)?, number(count)?)))
}

/// Of the processes that `mpirun` started, whatever they do, one speaks for all: whether this is another one. A build
/// without MPI cannot know of others: the variables of a launcher may be left over from another program.
pub fn mute_all_but_first() -> bool {
    let is_another = cfg!(feature = "mpi") && said().is_some_and(|(rank, _)| rank > 0);
    if is_another {
        mute();
    }
    is_another
}

/// How many processes `mpirun` started; none where it did not start this one.
pub(super) fn count() -> Option<usize> {
    said().map(|(_, count)| count)
}

/// The variable that says which of them this one is, as it is set.
#[cfg(not(feature = "mpi"))]
pub(super) fn variable() -> &'static str {
    VARIABLES
        .iter()
        .map(|&(rank, _)| rank)
        .find(|rank| std::env::var_os(rank).is_some())
        .unwrap_or("PMI_RANK")
}
