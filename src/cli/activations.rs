//! `activations`: the activations of a forward pass as a file.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, backend::AutodiffBackend};
use clap::ValueEnum;
use serde_json::json;

use super::input::{self, RunArgs};
use super::interventions::InterventionArgs;
use super::patch::{PatchArgs, PatchSource};
use super::sites::{Shapes, check_memory, matching};
use crate::analysis::Sample;
use crate::analysis::activations::{
    Activation, LOGITS, RecordableSite, WEIGHTS_ENTRY, record, to_safetensors,
};
use crate::backend::Job;
use crate::data::Vocabulary;
use crate::error::{Error, Result};
use crate::evaluation::DeviceBatch;
use crate::files::{sha256, write_atomically};
use crate::terminal::{print_json, say};
use crate::training::RunFolder;

/// Write the activations of a run's model on a text to a safetensors file, for NumPy or PyTorch.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    given: input::InputArgs,
    /// The sites to write, separated by commas; * stands for any characters, e.g. "resid_pre.*,attn.3.pattern,mlp.2.out".
    #[arg(long, value_name = "SITES", value_delimiter = ',', required_unless_present = "list")]
    sites: Vec<String>,
    /// The file to write; an existing file is replaced only if activations created it.
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// The type of the numbers.
    #[arg(long, value_enum, default_value_t = NumberType::F32)]
    dtype: NumberType,
    /// Lists the sites of the model with their shapes for this text, and writes nothing.
    #[arg(long, conflicts_with_all = ["sites", "out"])]
    list: bool,
    #[command(flatten)]
    interventions: InterventionArgs,
    #[command(flatten)]
    patch: PatchArgs,
    #[command(flatten)]
    run: RunArgs,
    /// Prints the sites and their shapes as JSON.
    #[arg(long)]
    json: bool,
}

/// The type of the numbers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NumberType {
    F32,
    F16,
}

/// The metadata entry that identifies a file of this command.
const TOKENS: &str = "causal_attention.tokens";

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    args.out.iter().try_for_each(|out| check_file(out))?;
    let run = args.run.open(&[])?;
    let vocabulary = Vocabulary::read(run.folder.vocabulary())?;
    let sample = args.given.sample(&vocabulary, &run.config)?;
    let source =
        args.patch.source(&run.config, |text| args.given.with_text(text).sample(&vocabulary, &run.config))?;
    let (shapes, activations) =
        run.compute(SiteRecord { args: &args, folder: &run.folder, sample: &sample, source })?;
    if let Some(out) = &args.out {
        let metadata = metadata(&args, &run.folder, &sample, &vocabulary)?;
        let bytes = to_safetensors(&activations, metadata)?;
        write_atomically(out, &bytes)?;
    }
    if args.json {
        let sites: serde_json::Map<_, _> =
            shapes.into_iter().map(|(name, shape)| (name, json!(shape))).collect();
        print_json(&json!({ "sites": sites }));
        return Ok(());
    }
    for (name, shape) in &shapes {
        let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
        say(&format!("{name:<19} [{}]", shape.join(", ")));
    }
    args.out.iter().for_each(|out| say(&out.display().to_string()));
    Ok(())
}

/// Returns what a reader of the file needs: the tokens, their ids, the run and the interventions.
fn metadata(
    args: &Args,
    folder: &RunFolder,
    sample: &Sample,
    vocabulary: &Vocabulary,
) -> Result<HashMap<String, String>> {
    let names = |ids: &[u32]| ids.iter().map(|&id| vocabulary.token(id)).collect::<Vec<_>>();
    let mut entries = vec![
        (TOKENS.to_string(), json!(names(&sample.inputs)).to_string()),
        ("causal_attention.ids".to_string(), json!(sample.inputs).to_string()),
        ("causal_attention.run".to_string(), folder.name()),
        (WEIGHTS_ENTRY.to_string(), sha256(&folder.model())?),
    ];
    let options = [args.interventions.options(), args.patch.options()].concat();
    if !options.is_empty() {
        entries.push(("causal_attention.interventions".to_string(), options.join(" ")));
    }
    if let Some(source) = &sample.source {
        entries.push(("causal_attention.source_tokens".to_string(), json!(names(source)).to_string()));
        entries.push(("causal_attention.source_ids".to_string(), json!(source).to_string()));
    }
    Ok(entries.into_iter().collect())
}

/// Checks that the output does not replace a file of another program.
fn check_file(path: &Path) -> Result<()> {
    let is_own = || -> Option<bool> {
        let mut file = File::open(path).ok()?;
        let mut length = [0; 8];
        file.read_exact(&mut length).ok()?;
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(1 << 24)).read_to_end(&mut header).ok()?;
        let header: serde_json::Value = serde_json::from_slice(&header).ok()?;
        Some(header["__metadata__"].get(TOKENS).is_some())
    };
    if path.symlink_metadata().is_ok() && is_own() != Some(true) {
        return Err(Error::file(path, "exists and was not made by `activations`; pass another --out"));
    }
    Ok(())
}

/// The job that records activations; with --list, only their shapes.
struct SiteRecord<'a> {
    args: &'a Args,
    folder: &'a RunFolder,
    sample: &'a Sample,
    source: PatchSource<'a>,
}

impl Job for SiteRecord<'_> {
    type Output = (Shapes, Vec<Activation>);

    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output> {
        let Self { args, folder, sample, source } = self;
        let (model, description) = input::model::<B::InnerBackend>(folder, &device)?;
        let (model, means) = args.interventions.apply_with_means(model, &description, folder, &device)?;
        let (time, source_time) = (sample.inputs.len(), sample.source.as_ref().map_or(0, Vec::len));
        input::check_length(&description, time, source_time)?;
        let all = RecordableSite::all(&model, &device)?;
        let named = all.iter().map(|at| (at.site.to_string(), at.shape(time, source_time)));
        let named: Shapes =
            named.chain([(LOGITS.to_string(), vec![time, description.sizes.vocab])]).collect();
        if args.list {
            return Ok((named, Vec::new()));
        }
        let chosen = chosen(&args.sites, &named)?;
        check_memory("--sites", &chosen)?;
        let is_chosen = |name: &str| chosen.iter().any(|(chosen, _)| chosen == name);
        let sites: BTreeSet<_> =
            all.iter().map(|at| at.site).filter(|site| is_chosen(&site.to_string())).collect();
        let patch = source.patch(&model, &description, time, &device)?;
        let inputs = DeviceBatch::new(&Sample::batch_of(std::slice::from_ref(sample)), &device).inputs;
        let dtype = if args.dtype == NumberType::F16 { DType::F16 } else { DType::F32 };
        let mut activations = record((&model, &patch), inputs, &sites, is_chosen(LOGITS), dtype)?;
        for (component, mean) in &means {
            activations.iter_mut().for_each(|activation| activation.put_mean(*component, mean));
        }
        let shapes = activations.iter().map(|it| (it.name.clone(), it.data.shape.to_vec())).collect();
        Ok((shapes, activations))
    }
}

/// Returns the sites that match one of the patterns.
fn chosen(patterns: &[String], named: &Shapes) -> Result<Shapes> {
    let mut chosen = BTreeSet::new();
    for pattern in patterns {
        chosen.extend(matching("--sites", pattern.trim(), named)?);
    }
    Ok(chosen.into_iter().map(|index| named[index].clone()).collect())
}
