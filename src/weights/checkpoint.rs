//! The named tensors in the files of other programs: one safetensors file or several, the index of
//! such shards, or a PyTorch file.
//!
//! A PyTorch file is a pickle, which can name any code. It is read, never run: burn-store's reader
//! knows the few functions that make tensors and dictionaries, and refuses a file that names
//! another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use burn_store::TensorSnapshot;
use burn_store::pytorch::PytorchReader;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::file::FileBytes;
use crate::error::{Error, Result};
use crate::terminal::Bytes;

/// nanoGPT's `model_args`, as far as they say more than the weights.
#[derive(Debug, Deserialize, Serialize)]
struct Arguments {
    n_layer: usize,
    n_head: usize,
    n_embd: usize,
    block_size: usize,
    vocab_size: usize,
    dropout: f64,
}

/// What the files of a checkpoint hold.
#[derive(Debug, Clone, Default)]
pub struct Checkpoint {
    /// The tensors by name, in 32-bit floats.
    pub tensors: BTreeMap<String, TensorData>,
    /// The model's arguments, where a PyTorch file holds them beside the weights, as nanoGPT's does.
    pub arguments: Option<Value>,
}

/// Names under which a folder may hold weights, the first that exists counts.
const FILES: [&str; 6] = [
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "ckpt.pt",
    "model.pt",
];

/// Whether a file has one of the usual names, so that its folder says which model it is.
pub fn has_usual_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| FILES.iter().any(|usual| name == *usual))
}

/// The files that hold the weights: a folder stands for the weights in it, an index for its
/// shards.
///
/// # Errors
/// If a folder holds no weights, or an index cannot be read or names a file elsewhere.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        let path = match path.is_dir() {
            false => path.clone(),
            true => {
                FILES.iter().map(|name| path.join(name)).find(|path| path.is_file()).ok_or_else(|| {
                    let problem = format!("holds no weights: none of {}", FILES.join(", "));
                    Error::file(path, None, None, problem)
                })?
            }
        };
        match path.extension().is_some_and(|extension| extension == "json") {
            true => files.extend(shards(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

/// The files that an index names.
fn shards(index: &Path) -> Result<BTreeSet<PathBuf>> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let bytes = fs::read(index).map_err(|error| Error::io("read", index, error))?;
    let parsed = serde_json::from_slice::<Index>(&bytes).map_err(|error| {
        let problem =
            format!("is no index of shards: {error}; name model.safetensors.index.json, or the shards");
        Error::file(index, Some(error.line()), Some(error.column()), problem)
    })?;
    let beside = |name: &String| match Path::new(name).file_name() {
        Some(plain) if plain == name.as_str() => Ok(index.with_file_name(name)),
        _ => Err(Error::file(index, None, None, format!("names `{name}`, which is no file beside it"))),
    };
    parsed.weight_map.values().map(beside).collect()
}

impl Checkpoint {
    /// Reads all of `files`, leaving out tensors whose name is `ignored`.
    ///
    /// # Errors
    /// If a file cannot be read, is damaged, holds code, or a tensor that is no float or stands in
    /// two files.
    pub fn read(files: &[PathBuf], ignored: impl Fn(&str) -> bool) -> Result<Self> {
        let mut checkpoint = Self::default();
        for path in files {
            let bytes = FileBytes::open(path)?;
            let tensors = match is_pytorch(&bytes) {
                true => {
                    let (tensors, arguments) = read_pytorch(&bytes, path, &ignored)?;
                    checkpoint.arguments = checkpoint.arguments.or(arguments);
                    tensors
                }
                false => read_safetensors(&bytes, path, &ignored)?,
            };
            for (name, data) in tensors {
                if checkpoint.tensors.contains_key(&name) {
                    let problem = format!("holds `{name}`, which another file holds too");
                    return Err(Error::file(path, None, None, problem));
                }
                checkpoint.tensors.insert(name, data);
            }
        }
        Ok(checkpoint)
    }
}

/// Whether a file begins as PyTorch's do: a zip archive, or a pickle.
fn is_pytorch(bytes: &[u8]) -> bool {
    // The length of a safetensors header ends in zero bytes, and an opening brace follows it.
    let is_safetensors = bytes.get(8) == Some(&b'{');
    !is_safetensors && (bytes.starts_with(b"PK\x03\x04") || bytes.first() == Some(&0x80))
}

type Tensors = Vec<(String, TensorData)>;

fn read_safetensors(bytes: &[u8], path: &Path, ignored: impl Fn(&str) -> bool) -> Result<Tensors> {
    let damaged = |problem: String| Error::file(path, None, None, problem);
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| damaged(format!("is no whole safetensors or PyTorch file: {error}")))?;
    let mut tensors = Vec::new();
    for (name, view) in file.tensors() {
        if ignored(&name) {
            continue;
        }
        let dtype = match view.dtype() {
            Dtype::F64 => DType::F64,
            Dtype::F32 => DType::F32,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            other => return Err(damaged(format!("`{name}` is {other:?}: floats are expected"))),
        };
        let data = TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype);
        tensors.push((name, data.convert::<f32>()));
    }
    Ok(tensors)
}

/// How much more its tensors may take than a file itself: some share their numbers, as a tied head does.
const MOST_UNPACKED: f64 = 4.0;

fn unpacked_bytes(snapshot: &TensorSnapshot) -> f64 {
    snapshot.shape.iter().map(|&size| size as f64).product::<f64>() * snapshot.dtype.size() as f64
}

/// The first record of a zip archive that is compressed, by the list at its end.
fn compressed_record(bytes: &[u8]) -> Option<String> {
    const END: &[u8] = b"PK\x05\x06";
    const RECORD: &[u8] = b"PK\x01\x02";
    let number = |at: usize, length: usize| -> Option<usize> {
        let digits = bytes.get(at..at.checked_add(length)?)?;
        Some(digits.iter().rev().fold(0, |number, &digit| number << 8 | usize::from(digit)))
    };
    // A comment of up to 64 KiB may follow the end.
    let tail = bytes.len().saturating_sub(22 + 65_535);
    let end = tail + bytes.get(tail..)?.windows(4).rposition(|window| window == END)?;
    // In the archive's larger form the list begins elsewhere, but it ends here in both.
    let mut at = match number(end + 16, 4)? {
        0xffff_ffff => tail + bytes[tail..].windows(4).position(|window| window == RECORD)?,
        start => start,
    };
    while bytes.get(at..)?.starts_with(RECORD) {
        let [name, extra, comment] = [28, 30, 32].map(|offset| number(at + offset, 2).unwrap_or(0));
        if number(at + 10, 2)? != 0 {
            return Some(String::from_utf8_lossy(bytes.get(at + 46..at + 46 + name)?).into_owned());
        }
        at += 46 + name + extra + comment;
    }
    None
}

/// The weights in a PyTorch file, by themselves or under one of the usual keys, and the arguments
/// of the model beside them.
fn read_pytorch(
    bytes: &[u8],
    path: &Path,
    ignored: impl Fn(&str) -> bool,
) -> Result<(Tensors, Option<Value>)> {
    if let Some(record) = compressed_record(bytes) {
        let problem = format!(
            "holds `{record}` compressed, as torch.save never does, so it could unpack to any size: save it anew"
        );
        return Err(Error::file(path, None, None, problem));
    }
    let damaged = |problem: String| {
        let problem = match problem.split_once("Unsupported Python type '") {
            Some((_, rest)) => format!(
                "holds pickled code (`{}`), which is never run: save the weights alone, as \
                 torch.save(model.state_dict(), \"model.pt\") does",
                rest.split('\'').next().unwrap_or(rest)
            ),
            None => {
                format!("is no PyTorch file that can be read: {}", problem.replace('\n', " "))
            }
        };
        Error::file(path, None, None, problem)
    };
    // The reader trusts lengths that it finds in the file, so a damaged one may make it panic.
    let guarded = catch_unwind(AssertUnwindSafe(|| {
        let reader = ["model", "state_dict", "model_state_dict"]
            .iter()
            .find_map(|key| PytorchReader::with_top_level_key(path, key).ok())
            .map_or_else(|| PytorchReader::new(path), Ok)
            .map_err(|error| damaged(error.to_string()))?;
        let mut tensors = Vec::new();
        let snapshots = reader.into_tensors();
        let held: f64 = snapshots.values().map(unpacked_bytes).sum();
        if held > MOST_UNPACKED * bytes.len() as f64 {
            let problem = format!(
                "unpacks to {}, far more than the {} of the file: save it anew by torch.save(model.state_dict(), ...)",
                Bytes(held),
                Bytes(bytes.len() as f64)
            );
            return Err(Error::file(path, None, None, problem));
        }
        for (name, snapshot) in snapshots {
            if ignored(&name) {
                continue;
            }
            let data = snapshot.to_data().map_err(|error| damaged(format!("`{name}`: {error:?}")))?;
            if !data.dtype.is_float() {
                return Err(damaged(format!("`{name}` is {:?}, and floats are expected", data.dtype)));
            }
            tensors.push((name, data.convert::<f32>()));
        }
        let arguments = PytorchReader::load_config::<Arguments, _>(path, Some("model_args")).ok();
        Ok((tensors, arguments.and_then(|arguments| serde_json::to_value(arguments).ok())))
    }));
    guarded.unwrap_or_else(|_| Err(damaged("it is damaged".to_string())))
}
