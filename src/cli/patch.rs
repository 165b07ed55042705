//! `--patch-from` and `--at`: activations that take their values from another text.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::backend::Backend;

use super::input;
use super::sites::{Shapes, check_memory, matching};
use crate::analysis::Sample;
use crate::analysis::activations::{LOGITS, RecordableSite, patch_from};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::evaluation::DeviceBatch;
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Patch};
use crate::model::{Architecture, Model};
use crate::numbers::counted;
use crate::terminal::warn;
use crate::weights::native::Description;

/// Activation patching: activations at some positions take their values from another text.
#[derive(Debug, clap::Args)]
pub struct PatchArgs {
    /// Replaces activations by their values on this text, at the sites and positions of --at (activation patching).
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "at")]
    patch_from: Option<String>,
    /// The activations to replace, e.g. resid_post.1@last, "attn.*.out@3" or mlp.0.out@2-5; may be repeated. Positions
    /// count from 0, negative ones from the end, and * is all; resid_post.1@3=5 takes the value at position 5.
    #[arg(long, value_name = "SITE@POSITION", requires = "patch_from", value_parser = parse)]
    at: Vec<PatchPoint>,
}

/// The sites that match a pattern, and their replaced positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchPoint {
    text: String,
    pattern: String,
    positions: Positions,
}

/// Positions to replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Positions {
    All,
    /// The first and the last position.
    Range(usize, usize),
    /// A position, and the position in the other text whose value it takes; negative ones count from the end.
    One(i64, i64),
}

/// Parses `SITE@POSITION`, `SITE@FIRST-LAST`, `SITE@*` or `SITE@POSITION=SOURCE`.
fn parse(written: &str) -> Result<PatchPoint, String> {
    let place = |text: &str| if text == "last" { Some(-1) } else { text.parse::<i64>().ok() };
    let range = |text: &str| {
        let (first, last) = text.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?)).filter(|(first, last)| first <= last)
    };
    let positions = |text: &str| match text.split_once('=') {
        Some((position, source)) => Some(Positions::One(place(position)?, place(source)?)),
        None if text == "*" => Some(Positions::All),
        None => match place(text) {
            Some(place) => Some(Positions::One(place, place)),
            None => range(text).map(|(first, last)| Positions::Range(first, last)),
        },
    };
    let point = written.rsplit_once('@').filter(|(pattern, _)| !pattern.is_empty());
    let point = point.and_then(|(pattern, text)| {
        Some(PatchPoint {
            text: written.to_string(),
            pattern: pattern.to_string(),
            positions: positions(text)?,
        })
    });
    point.ok_or_else(|| "write SITE@POSITION, such as resid_post.1@last, mlp.0.out@3 or mlp.*.out@2-5".into())
}

impl Positions {
    /// Returns the pairs of a position of the input of `time` tokens and a position of the other text.
    fn pairs(self, time: usize, source_time: usize) -> Result<Vec<[usize; 2]>> {
        let pair = |position: i64, source: i64| {
            let position = resolve(position, time, "the input", "name one of them")?;
            let remedy = "pass a longer text, or name the position to take as SITE@POSITION=SOURCE";
            Ok([position, resolve(source, source_time, "the --patch-from text", remedy)?])
        };
        match self {
            Positions::One(position, source) => Ok(vec![pair(position, source)?]),
            Positions::All => (0..time as i64).map(|position| pair(position, position)).collect(),
            Positions::Range(first, last) => {
                (first as i64..=last as i64).map(|position| pair(position, position)).collect()
            }
        }
    }
}

/// Returns the index of a position in a text of `time` tokens.
fn resolve(position: i64, time: usize, what: &str, remedy: &str) -> Result<usize> {
    let index = if position < 0 { position + time as i64 } else { position };
    if (0..time as i64).contains(&index) {
        return Ok(index as usize);
    }
    let last = time.saturating_sub(1);
    Err(Error::Input(format!(
        "--at: position {position} is outside {what}, of which the model reads the positions 0 to {last}; {remedy}"
    )))
}

/// The other text of a patch, and the activations to take from it.
#[derive(Debug, Default)]
pub struct PatchSource<'a> {
    points: &'a [PatchPoint],
    sample: Option<Sample>,
}

impl PatchArgs {
    /// Returns the options as they are written on the command line.
    pub fn options(&self) -> Vec<String> {
        let text = self.patch_from.iter().map(|text| format!("--patch-from {text:?}"));
        text.chain(self.at.iter().map(|point| format!("--at {}", point.text))).collect()
    }

    /// Returns the other text, as encoded by `read`.
    ///
    /// # Errors
    /// Returns an error for an encoder-decoder, and the errors of `read`.
    pub fn source(
        &self,
        config: &Config,
        read: impl FnOnce(&str) -> Result<Sample>,
    ) -> Result<PatchSource<'_>> {
        let Some(text) = &self.patch_from else { return Ok(PatchSource::default()) };
        if config.model.architecture == Architecture::EncoderDecoder {
            let problem =
                "an encoder-decoder reads two texts, so it cannot be patched from one; use a decoder";
            return Err(Error::Input(format!("--patch-from: {problem}")));
        }
        let sample = read(text).map_err(|error| match error {
            Error::Input(problem) => Error::Input(format!("--patch-from: {problem}")),
            other => other,
        })?;
        if sample.inputs.is_empty() {
            return Err(Error::Input("--patch-from: the text is too short; pass a longer one".into()));
        }
        Ok(PatchSource { points: &self.at, sample: Some(sample) })
    }
}

impl PatchSource<'_> {
    /// Returns true if there is another text.
    pub fn is_given(&self) -> bool {
        self.sample.is_some()
    }

    /// Runs the model on the other text, and returns the patch for an input of `time` tokens. Prints what it replaces.
    ///
    /// # Errors
    /// Returns an error if a site or a position does not exist, or if the model cannot read the other text.
    pub fn patch<B: Backend>(
        &self,
        model: &Model<B>,
        description: &Description,
        time: usize,
        device: &B::Device,
    ) -> Result<Patch> {
        let Some(sample) = &self.sample else { return Ok(Patch::default()) };
        let source_time = sample.inputs.len();
        input::check_length(description, source_time, 0)
            .map_err(|error| Error::Input(format!("--patch-from: {error}")))?;
        let all = RecordableSite::all(model, device)?;
        let named: Shapes = all.iter().map(|it| (it.site.to_string(), it.shape(source_time, 0))).collect();
        let (mut positions, mut chosen) = (BTreeMap::<HookSite, Vec<_>>::new(), BTreeSet::new());
        let mut described = Vec::new();
        for PatchPoint { pattern, positions: wanted, .. } in self.points {
            if pattern == LOGITS {
                let problem = "cannot be replaced, because nothing reads them; replace final";
                return Err(Error::Input(format!("--at: the {LOGITS} {problem}")));
            }
            let found = matching("--at", pattern, &named)?;
            let pairs = wanted.pairs(time, source_time)?;
            for site in found.iter().map(|&index| all[index].site) {
                check_keys(site, &pairs)?;
                let replaced: &mut Vec<[usize; 2]> = positions.entry(site).or_default();
                if let Some([position, _]) =
                    pairs.iter().find(|[at, _]| replaced.iter().any(|[other, _]| other == at))
                {
                    let problem = "is replaced twice; name the site and the position once";
                    return Err(Error::Input(format!("--at: position {position} of {site} {problem}")));
                }
                replaced.extend(&pairs);
            }
            let names: Vec<&str> = found.iter().map(|&index| named[index].0.as_str()).collect();
            described.push(format!("{} at {}", shortened(&names), counted(pairs.len(), "position")));
            chosen.extend(found);
        }
        check_memory("--at", &chosen.into_iter().map(|index| named[index].clone()).collect())?;
        let inputs = DeviceBatch::new(&Sample::batch_of(std::slice::from_ref(sample)), device).inputs;
        let patch = patch_from(model, inputs, positions)?;
        warn(&format!(
            "notice: activations are replaced by those on the --patch-from text: {}",
            described.join(", ")
        ));
        Ok(patch)
    }
}

/// Checks that a patch can be used with a KV cache, which holds one copy of the keys that heads share.
///
/// # Errors
/// Returns an error if it replaces queries, keys or values of heads that share keys.
pub fn check_cached(patch: &Patch, Description { model, .. }: &Description) -> Result<()> {
    use AttentionPoint::{Key, Query, Value};
    let is_projection = |site: &HookSite| matches!(site.point, HookPoint::SelfAttention(Query | Key | Value));
    let shares_keys = ![0, model.heads].contains(&model.key_value_heads);
    if !shares_keys || !patch.replaces(is_projection) {
        return Ok(());
    }
    let problem = "queries, keys and values of heads that share keys cannot be patched with a KV cache";
    Err(Error::Input(format!("--at: {problem}; add --no-cache")))
}

/// Checks that scores and attention weights, which have a column for each key, are taken from the same position.
fn check_keys(site: HookSite, pairs: &[[usize; 2]]) -> Result<()> {
    use AttentionPoint::{Parts, Pattern, Scores};
    let has_keys = matches!(site.point, HookPoint::SelfAttention(Scores | Parts | Pattern));
    match pairs.iter().find(|[position, source]| has_keys && position != source) {
        None => Ok(()),
        Some([position, source]) => Err(Error::Input(format!(
            "--at: `{site}` has a value for each key, so position {position} cannot take the value at position {source}; \
             patch the same position, or another site such as attn.{}.out",
            site.layer
        ))),
    }
}

/// Returns the names of sites, shortened if there are many.
fn shortened(names: &[&str]) -> String {
    match names {
        [first, .., last] if names.len() > 4 => format!("{} sites ({first} to {last})", names.len()),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_name_sites_and_positions() {
        let positions = |text: &str| parse(text).map(|point| point.positions);
        assert_eq!(positions("resid_post.1@last"), Ok(Positions::One(-1, -1)));
        assert_eq!(positions("attn.*.out@-2"), Ok(Positions::One(-2, -2)));
        assert_eq!(positions("mlp.0.out@3=last"), Ok(Positions::One(3, -1)));
        assert_eq!(positions("mlp.0.out@2-5"), Ok(Positions::Range(2, 5)));
        assert_eq!(positions("*@*"), Ok(Positions::All));
        for wrong in ["resid_post.1", "@3", "embed@", "embed@5-2", "embed@first", "embed@1=", "embed@1=2-3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Positions::One(-1, -1).pairs(5, 3).unwrap(), [[4, 2]]);
        assert_eq!(Positions::Range(1, 2).pairs(5, 3).unwrap(), [[1, 1], [2, 2]]);
        let problem = Positions::All.pairs(5, 3).unwrap_err().to_string();
        assert!(
            problem.contains(
                "position 3 is outside the --patch-from text, of which the model reads the positions 0 to 2"
            ),
            "{problem}"
        );
    }
}
