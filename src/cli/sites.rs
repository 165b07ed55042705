//! Hook sites by their names, as options give them.

use glob::Pattern;

use crate::backend;
use crate::error::{Error, Result};
use crate::numbers::{Bytes, counted};

/// The names and shapes of activations.
pub type Shapes = Vec<(String, Vec<usize>)>;

/// The number of copies of an activation in memory: on the device, on the host, and in the bytes of a file.
const COPIES: f64 = 3.0;

/// Returns the indices of the sites that match a pattern given with `option`.
///
/// # Errors
/// Returns an error that names the nearest sites if none matches.
pub fn matching(option: &str, pattern: &str, named: &Shapes) -> Result<Vec<usize>> {
    let wanted = Pattern::new(pattern)
        .map_err(|error| Error::Input(format!("{option}: `{pattern}` is not a pattern: {error}")))?;
    let found = named.iter().enumerate().filter(|(_, (name, _))| wanted.matches(name));
    let found: Vec<usize> = found.map(|(index, _)| index).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let similarity = |name: &str| strsim::normalized_damerau_levenshtein(pattern, name);
    let mut nearest: Vec<_> = named.iter().map(|(name, _)| (similarity(name), name.as_str())).collect();
    nearest.sort_by(|a, b| b.0.total_cmp(&a.0));
    let nearest: Vec<&str> = nearest.into_iter().take(3).map(|(_, name)| name).collect();
    Err(Error::Input(format!(
        "{option}: `{pattern}` matches no site of this model; the nearest are {}; `activations --list` lists all of them",
        nearest.join(", ")
    )))
}

/// Checks that the activations chosen with `option` fit into memory.
///
/// # Errors
/// Returns an error with the required and the free memory.
pub fn check_memory(option: &str, chosen: &Shapes) -> Result<()> {
    let values: f64 =
        chosen.iter().map(|(_, shape)| shape.iter().map(|&size| size as f64).product::<f64>()).sum();
    let (needed, free) = (COPIES * 4.0 * values, backend::free_memory());
    if needed <= free {
        return Ok(());
    }
    Err(Error::Input(format!(
        "{} {} about {} of memory, but only {} is free; choose fewer sites with {option}, or shorten the input",
        counted(chosen.len(), "activation"),
        if chosen.len() == 1 { "needs" } else { "need" },
        Bytes(needed),
        Bytes(free)
    )))
}
