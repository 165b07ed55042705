//! Named tensors in foreign files: one or several safetensors files, the index of such shards, or PyTorch files.
//!
//! A PyTorch file is a pickle, which can name any code. It is parsed, never executed: the reader supports only the few
//! functions that create tensors and dictionaries. It checks every declared length against the file's size.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use burn::tensor::DType;
use pytorch_reader::{PytorchReader, Tensor};
use serde::Deserialize;
use serde_json::Value;

use super::file::{LazyTensor, WeightsFile, floats};
use super::{NOT_FINITE, not_finite, refuse};
use crate::error::{Error, Result};
use crate::files::{exists, read_given_json};
use crate::numbers::Bytes;

/// File names of weights in a folder; the first that exists is used.
const FILES: [&str; 6] = [
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
    "ckpt.pt",
    "model.pt",
];

/// The opened weights files of a model.
#[derive(Debug)]
pub struct ForeignWeights {
    /// The files, opened.
    pub files: Vec<WeightsFile>,
    /// The shard indexes: the path of each index, and the file of each tensor that it names.
    indexed: Vec<(PathBuf, BTreeMap<String, PathBuf>)>,
}

/// Returns true if a file has one of the usual names, in which case the name of its folder identifies the model.
pub fn has_usual_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| FILES.iter().any(|usual| name == *usual))
}

/// Opens weights files. A folder is replaced by the weights in it, and an index by its shards.
///
/// # Errors
/// Returns an error if a folder contains no weights, an index cannot be read or names a file outside its folder, or a
/// file cannot be opened.
pub fn open(paths: &[PathBuf]) -> Result<ForeignWeights> {
    let (mut files, mut indexed) = (Vec::new(), Vec::new());
    for path in paths {
        let is_folder = path.is_dir();
        let path = if is_folder { find_weights(path)? } else { path.clone() };
        match path.extension().is_some_and(|extension| extension == "json") {
            true => {
                let shards = shards(&path)?;
                if is_folder {
                    refuse_both(&path, &shards)?;
                }
                files.extend(shards.values().cloned().collect::<BTreeSet<_>>());
                indexed.push((path, shards));
            }
            false => files.push(path),
        }
    }
    let files = files.into_iter().map(WeightsFile::open).collect::<Result<_>>()?;
    Ok(ForeignWeights { files, indexed })
}

/// Returns the weights in a folder: the first file with a usual name.
fn find_weights(folder: &Path) -> Result<PathBuf> {
    exists(&folder.join(FILES[0]))?;
    let found = FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    let problem = || format!("contains no weights file; expected one of {}", FILES.join(", "));
    found.ok_or_else(|| Error::file(folder, problem()))
}

/// Refuses a folder with both an index of `shards` and a single weights file that is not one of them. transformers
/// reads the single file, whose weights may differ.
fn refuse_both(index: &Path, shards: &BTreeMap<String, PathBuf>) -> Result<()> {
    const INDEX: &str = ".index.json";
    let name = index.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some(single) = name.strip_suffix(INDEX) else { return Ok(()) };
    let path = index.with_file_name(single);
    if path.is_file() && !shards.values().any(|shard| *shard == path) {
        let problem = format!("is next to {name}, which names other files; remove one of the two");
        return Err(Error::file(path, problem));
    }
    Ok(())
}

/// Returns the tensors that an index names, each with its file.
fn shards(index: &Path) -> Result<BTreeMap<String, PathBuf>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let what = "an index of shards; pass model.safetensors.index.json, or the shards themselves";
    let Index { weight_map } = read_given_json(index, what)?;
    if weight_map.is_empty() {
        return Err(Error::file(index, "`weight_map` lists no tensors"));
    }
    let shard_path = |(tensor, name): (String, String)| match Path::new(&name).file_name() {
        Some(plain) if plain == name.as_str() => Ok((tensor, index.with_file_name(name))),
        _ => {
            let problem = format!("`weight_map` names `{name}`, which is not a file next to the index");
            Err(Error::file(index, problem))
        }
    };
    weight_map.into_iter().map(shard_path).collect()
}

/// Returns the tensors of all files except those whose name is `ignored`. Also returns the model's arguments if a
/// PyTorch file has them next to the weights, as a nanoGPT checkpoint does.
///
/// # Errors
/// Returns an error if a file cannot be read, is damaged, or contains code, if a tensor is in two files, or if a file
/// lacks a tensor that an index assigns to it.
pub fn read(
    ForeignWeights { files, indexed }: &ForeignWeights,
    ignored: impl Fn(&str) -> bool,
) -> Result<(BTreeMap<String, LazyTensor>, Option<Value>)> {
    let (mut all, mut arguments) = (BTreeMap::new(), None);
    let mut missing: Vec<_> = indexed.iter().map(|(_, shards)| shards.clone()).collect();
    for file in files {
        let tensors = if is_pytorch(&file.bytes(0..9)?) {
            let (tensors, found) = read_pytorch(file)?;
            arguments = arguments.or(found);
            tensors
        } else {
            file.tensors()?
        };
        for tensor in &tensors {
            missing.iter_mut().for_each(|shards| {
                if shards.get(&tensor.name).is_some_and(|shard| shard == file.path()) {
                    shards.remove(&tensor.name);
                }
            });
        }
        for tensor in tensors.into_iter().filter(|tensor| !ignored(&tensor.name)) {
            let name = tensor.name.clone();
            if all.contains_key(&name) {
                let problem =
                    format!("contains `{name}`, which is also in another file; pass only one of the two");
                return Err(file.error(problem));
            }
            all.insert(name, finite(file, tensor));
        }
    }
    for ((index, _), missing) in indexed.iter().zip(missing) {
        let listed = |(name, shard): (String, PathBuf)| format!("`{name}` in {}", shard.display());
        let problems: Vec<_> = missing.into_iter().map(listed).collect();
        refuse(index, &problems, "lists tensors that their files do not contain")?;
    }
    Ok((all, arguments))
}

/// Refuses the values of a tensor when it is read unless all are finite.
pub(super) fn finite(file: &WeightsFile, tensor: LazyTensor) -> LazyTensor {
    let file = file.clone();
    LazyTensor::new(tensor.name.clone(), tensor.shape.clone(), move || {
        let data = tensor.read()?;
        let non_finite: Vec<_> = not_finite(&tensor.name, &data).into_iter().collect();
        refuse(file.path(), &non_finite, NOT_FINITE)?;
        Ok(data)
    })
}

/// Returns true if a file starts like a PyTorch file, which is a zip archive or a pickle.
fn is_pytorch(bytes: &[u8]) -> bool {
    // The length of a safetensors header ends in zero bytes and is followed by an opening brace.
    let is_safetensors = bytes.get(8) == Some(&b'{');
    !is_safetensors && (bytes.starts_with(b"PK\x03\x04") || bytes.first() == Some(&0x80))
}

/// Reads the weights of a PyTorch file, at the top level or under one of the usual keys, and the model arguments next
/// to them.
fn read_pytorch(file: &WeightsFile) -> Result<(Vec<LazyTensor>, Option<Value>)> {
    if !file.is_regular() {
        let problem =
            "is a stream, but a PyTorch file is read from its end; save it as a file and pass its path";
        return Err(file.error(problem));
    }
    let origin = file.clone();
    let refused = move |problem: String| {
        let problem = problem.replace('\n', " ");
        origin.error(format!(
            "is not a PyTorch weights file: {problem}; save only the weights with torch.save(model.state_dict(), \
             \"model.pt\"), because pickled code is never run"
        ))
    };
    let tensors = ["model", "state_dict", "model_state_dict"]
        .iter()
        .find_map(|key| PytorchReader::with_top_level_key(file.path(), key).ok())
        .map_or_else(|| PytorchReader::new(file.path()), Ok)
        .map_err(|error| refused(error.to_string()))?
        .into_tensors();
    // A few tensors may share storage, such as a tied head.
    let unpacked = tensors.values().map(|tensor| tensor.byte_len() as f64).sum::<f64>();
    if unpacked > 4.0 * file.length() as f64 {
        let [unpacked, packed] = [unpacked, file.length() as f64].map(Bytes);
        return Err(refused(format!("it unpacks to {unpacked}, far more than the {packed} of the file")));
    }
    // A file contains at most the moments of an optimizer and pickles in addition to the weights.
    let listed = listed_bytes(file).unwrap_or(0) as f64;
    if listed > 8.0 * unpacked + f64::from(1 << 26) {
        let [listed, unpacked] = [listed, unpacked].map(Bytes);
        return Err(refused(format!("it unpacks to {listed}, far more than the {unpacked} of its weights")));
    }
    let lazy = |(name, tensor): (String, Tensor)| {
        let refused = refused.clone();
        LazyTensor::new(name.clone(), tensor.shape().to_vec(), move || {
            let dtype = match tensor.dtype() {
                pytorch_reader::DType::F64 => DType::F64,
                pytorch_reader::DType::F32 => DType::F32,
                pytorch_reader::DType::F16 => DType::F16,
                pytorch_reader::DType::BF16 => DType::BF16,
                other => {
                    return Err(refused(format!(
                        "`{name}` has the type {other:?}; convert it to F32, F16, BF16 or F64"
                    )));
                }
            };
            let bytes = tensor.read().map_err(|error| refused(error.to_string()))?;
            Ok(floats(&bytes, dtype, tensor.shape()))
        })
    };
    let tensors = tensors.into_iter().map(lazy).collect();
    Ok((tensors, PytorchReader::load_config(file.path(), Some("model_args")).ok()))
}

/// Returns the unpacked size of a zip archive, according to its central directory; `None` if the file is not a zip
/// archive.
fn listed_bytes(archive: &WeightsFile) -> Option<u64> {
    /// Decodes a little-endian integer.
    fn number(bytes: &[u8], at: usize, count: usize) -> Option<u64> {
        let bytes = bytes.get(at..at + count)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
    let record =
        |at: u64, size: u64| archive.bytes(usize::try_from(at).ok()?..at.checked_add(size)? as usize).ok();
    // The end-of-central-directory record, which only a comment may follow.
    let length = archive.length() as u64;
    let tail = record(length.saturating_sub(42 + u64::from(u16::MAX)), length)?;
    let last = tail.windows(4).rposition(|window| window == b"PK\x05\x06")?;
    // A zip64 archive has a separate record for values that do not fit.
    let (count, mut entry) = match tail[last.saturating_sub(20)..].strip_prefix(b"PK\x06\x07") {
        Some(locator) => {
            let record = record(number(locator, 4, 8)?, 56)?;
            (number(&record, 32, 8)?, number(&record, 48, 8)?)
        }
        None => (number(&tail, last + 10, 2)?, number(&tail, last + 16, 4)?),
    };
    let mut sum = 0u64;
    for _ in 0..count {
        let fixed = record(entry, 46)?;
        let [size, name, more, comment] =
            [(24, 4), (28, 2), (30, 2), (32, 2)].map(|(at, count)| number(&fixed, at, count));
        let name = entry.checked_add(46 + name?)?;
        // A size that does not fit is the first entry of the zip64 extra field after the name.
        let size = if size? == u64::from(u32::MAX) { number(&record(name, 12)?, 4, 8)? } else { size? };
        sum = sum.saturating_add(size);
        entry = name + more? + comment?;
    }
    Some(sum)
}
