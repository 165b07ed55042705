//! An estimate of a run's memory, compared with the memory of this machine.
//!
//! A failed allocation ends the process, and a system that overcommits memory kills it later. A run that cannot fit is
//! therefore rejected before it writes any files.

use burn_flex::Flex;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use super::device::Device;
use crate::config::{Config, DeviceKind, TrainingConfig};
use crate::data::{Dataset, Documents, Source};
use crate::error::{Error, Result};
use crate::kernels::feed_forward::keeps_pre_activation;
use crate::model::Sizes;
use crate::numbers::{Bytes, counted, thousands};
use crate::ops::{Kernels, Mask, Precision};

/// The maximum number of shards that a worker computes at a time; each holds its activations and gradients.
pub const MAX_CONCURRENT_SHARDS: usize = 8;

/// The size of a number in single precision.
const BYTES_PER_NUMBER: f64 = 4.0;

/// Returns the bytes per trained parameter for an optimizer with this many moments: weight, gradient and moments, plus
/// weight and moments twice for a checkpoint, as tensors and as a file.
fn bytes_per_parameter(moments: usize) -> f64 {
    BYTES_PER_NUMBER * (2 + moments + 2 * (1 + moments)) as f64
}

/// The two large parts of a run's memory in bytes, and the batch that they are estimated for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryEstimate {
    /// The weights, gradients, optimizer moments, and their copies for a checkpoint.
    pub parameters: f64,
    /// The activations of one batch, kept for the backward pass.
    pub activations: f64,
    /// The number of rows of the largest batch.
    pub rows: usize,
}

impl MemoryEstimate {
    /// Estimates the memory of training on `dataset`.
    pub fn of(config: &Config, dataset: &Dataset, device: &Device) -> Self {
        let rows = concurrent_rows(&config.training, rows(&config.training, dataset), device);
        Self::of_batch(config, config.sizes(dataset), rows, device)
    }

    /// Estimates the memory from the config alone, before the data of a task is drawn; returns `None` for data from
    /// files.
    pub fn from_config(config: &Config, device: &Device) -> Option<(Self, Sizes)> {
        let data = &config.data;
        let longest = data.lengths.map_or(0, |[_, longest]| longest).max(data.length);
        let sizes = Sizes { vocab: data.symbols(), context: longest, source_context: None };
        let rows = config.training.batch_size.min(data.train_samples.max(data.valid_samples));
        let rows = concurrent_rows(&config.training, rows, device);
        let drawn = data.source() == Source::Sequences;
        drawn.then(|| (Self::of_batch(config, sizes, rows, device), sizes))
    }

    fn of_batch(config: &Config, sizes: Sizes, rows: usize, device: &Device) -> Self {
        let model = &config.model;
        let time = sizes.context + sizes.source_context.unwrap_or(0);
        // The numbers per position that a block keeps for the backward pass: queries, keys and values, the context, two
        // residuals and, unless it is recomputed, the inner layer before its activation. Reference operations also keep
        // two norms and the activation, and reference attention the attention weights, with and without dropout. Where
        // the kernels do not support attention, it runs in blocks and keeps no attention weights.
        let training = &config.training;
        let is_fused = training.kernels == Kernels::Fused;
        let fused = device.is_cpu() && is_fused && training.precision != Precision::F16;
        let keeps_inner = training.precision.kernel_precision().is_some_and(|precision| {
            keeps_pre_activation(precision, rows * time, [model.d_model, model.inner_width()])
        });
        let by_blocks = !device.is_cpu() && is_fused;
        // Differential heads have two queries and two contexts each, as wide as a head.
        let (maps_per_head, heads_width) =
            (1 + usize::from(model.differential), model.heads * model.head_width());
        let differential = if model.differential { 4 * heads_width } else { 0 };
        let attended = 2 * model.d_model + model.qkv_width() + heads_width + differential;
        let kept = match fused {
            true => attended + if keeps_inner { model.up_width() } else { 0 },
            false => {
                let maps = if by_blocks { 0 } else { 3 + usize::from(model.dropout > 0.0) };
                // The mask of a sequence has one byte per pair of tokens.
                let has_masks = !by_blocks && mask(config).differs_between_sequences();
                let mask = if has_masks { time.div_ceil(BYTES_PER_NUMBER as usize) } else { 0 };
                let repeated = if by_blocks { 3 * maps_per_head * heads_width } else { 0 };
                let inner = model.up_width() + model.inner_width();
                attended
                    + 2 * model.d_model
                    + inner
                    + repeated
                    + maps * maps_per_head * model.heads * time
                    + mask
            }
        };
        // Measured: short-lived tensors add a quarter. GPUs allocate memory in pages, which doubles the total.
        let overhead = if device.is_cpu() { 1.25 } else { 2.0 };
        let bytes_per_block = overhead * BYTES_PER_NUMBER * kept as f64;
        // The logits, their softmax, their gradient, and a copy.
        let bytes_of_logits = 4.0 * BYTES_PER_NUMBER * sizes.vocab as f64;
        let positions = (rows * time) as f64;
        let parameters = model.parameters_by_role::<Flex>(sizes).into_iter().map(|(role, count)| {
            let (rule, _) = training.rule(&role, 1);
            bytes_per_parameter(rule.moments()) * count as f64
        });
        Self {
            parameters: parameters.sum(),
            activations: positions * (model.blocks() as f64 * bytes_per_block + bytes_of_logits),
            rows,
        }
    }

    /// Checks that the memory of `device` is large enough: the free memory, or the total if the free memory is unknown.
    ///
    /// # Errors
    /// Returns [`Error::Key`] with the setting that makes the run too large.
    pub fn check(&self, config: &Config, sizes: Sizes, device: &Device) -> Result<()> {
        let free = match device.kind {
            DeviceKind::Processor | DeviceKind::Integrated | DeviceKind::Software => free_memory(),
            DeviceKind::Discrete | DeviceKind::Virtual => {
                device.memory.map_or(f64::INFINITY, |bytes| bytes as f64)
            }
        };
        let (model, all) = (&config.model, self.parameters + self.activations);
        let problem = format!(
            "with {} and a vocabulary of {} gives {} parameters, which need {} with gradients, \
             moments and a checkpoint, but only {} is free; use a smaller model",
            counted(model.layers, "layer"),
            sizes.vocab,
            thousands(model.parameters::<Flex>(sizes) as f64),
            Bytes(self.parameters),
            Bytes(free)
        );
        Error::check_key(self.parameters <= free, "model.d_model", model.d_model, problem)?;
        let problem = format!(
            "with sequences of {} and a vocabulary of {} needs about {}, but only {} is free; lower it \
             (raise training.accumulate to keep the effective batch size), data.length or the model's sizes",
            counted(sizes.context, "token"),
            thousands(sizes.vocab as f64),
            Bytes(all),
            Bytes(free)
        );
        Error::check_key(all <= free, "training.batch_size", config.training.batch_size, problem)?;
        self.check_tensors(config, sizes, device)
    }
}

/// Returns the rules of the mask in training, without the positions of documents.
fn mask(config: &Config) -> Mask<Flex> {
    let is_packed = config.data.text_documents() == Documents::Separate;
    config.model.mask(0, is_packed.then(|| Vec::new().into()))
}

/// Returns the number of a worker's `shards` computed at a time on the host: one per thread if `threads` divides the
/// number of shards; otherwise one after another, each with all threads.
pub fn concurrent_shards(threads: usize, shards: usize) -> usize {
    if threads <= MAX_CONCURRENT_SHARDS && shards.is_multiple_of(threads) { threads } else { 1 }
}

/// Returns the number of rows computed at a time if a batch has `rows`, for a single worker with all shards.
fn concurrent_rows(training: &TrainingConfig, rows: usize, device: &Device) -> usize {
    let shards = training.shards.unwrap_or(1);
    let threads = training.threads.unwrap_or_else(rayon::current_num_threads);
    let is_on_host = device.is_cpu() && training.kernels == Kernels::Fused;
    rows.div_ceil(shards) * if is_on_host { concurrent_shards(threads, shards) } else { 1 }
}

/// Returns the number of samples in the largest batch: a full batch, unless there are fewer samples. Batches of windows
/// are always full, even if the text is shorter than a batch.
pub fn rows(training: &TrainingConfig, dataset: &Dataset) -> usize {
    match dataset.train.window_starts() {
        Some(_) => training.batch_size,
        None => training.batch_size.min(dataset.train.len().max(dataset.valid.len())),
    }
}

/// Returns the bytes that this process can still allocate, given the machine's memory, the container's limit and the
/// address space limit (`ulimit -v`). Infinite if the system does not report them.
pub fn free_memory() -> f64 {
    let mut system = System::new();
    system.refresh_memory();
    let of_container = system.cgroup_limits().map(|limits| limits.total_memory.saturating_sub(limits.rss));
    let available = Some(system.available_memory()).filter(|&available| available > 0);
    let known = [available, of_container.filter(|_| available.is_some()), unused_addresses(&mut system)];
    known.into_iter().flatten().min().map_or(f64::INFINITY, |bytes| bytes as f64)
}

/// Returns the unused part of this process's address space limit, or `None` without a limit.
fn unused_addresses(system: &mut System) -> Option<u64> {
    let limit = address_limit()?;
    let own = sysinfo::get_current_pid().ok()?;
    let memory = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[own]), false, memory);
    Some(limit.saturating_sub(system.process(own)?.virtual_memory()))
}

#[cfg(unix)]
fn address_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to a variable of the type that the call expects.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) } == 0;
    (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(not(unix))]
fn address_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendName;

    fn refused(set: &[&str]) -> Option<String> {
        let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let config = Config::parse("", std::path::Path::new("config.toml"), &set).unwrap();
        let device = Device::processor(BackendName::Ndarray);
        let (memory, sizes) = MemoryEstimate::from_config(&config, &device).unwrap();
        memory.check(&config, sizes, &device).err().map(|error| error.to_string())
    }

    #[test]
    fn default_run_fits_and_absurd_sizes_are_rejected() {
        assert_eq!(refused(&[]), None);
        let long = refused(&[
            "data.length=1000000",
            "data.train_samples=2",
            "data.valid_samples=2",
            "model.d_model=1024",
            "model.position=none",
        ])
        .unwrap();
        assert!(long.starts_with("`training.batch_size` = ") && long.contains("1,000,000 tokens"), "{long}");
        let wide = refused(&["model.d_model=65536", "model.heads=64", "model.layers=1024"]).unwrap();
        assert!(wide.starts_with("`model.d_model` = 65536") && wide.contains("1,024 layers"), "{wide}");
    }

    #[test]
    fn batch_rows_are_capped_by_samples_not_streams() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text.txt");
        std::fs::write(&text, "a short text ".repeat(7)).unwrap();
        let path = format!("data.path={:?}", text.to_str().unwrap());
        let rows = |set: &[&str]| {
            let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
            let config = Config::parse("", std::path::Path::new("config.toml"), &set).unwrap();
            rows(&config.training, &crate::data::load(&config.data, 0).unwrap())
        };
        assert_eq!(rows(&["data.source=text", &path, "data.length=11", "training.batch_size=37"]), 37);
        let few = ["data.train_samples=5", "data.valid_samples=7"];
        assert_eq!(rows(&[&few[..], &["training.batch_size=37"]].concat()), 7);
        assert_eq!(rows(&[&few[..], &["training.batch_size=3"]].concat()), 3);
    }
}
