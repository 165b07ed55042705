//! `training.intervene`: changes of the forward pass or of the update during a part of training.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choices;
use crate::data::{DataConfig, Documents};
use crate::error::{Error, Result};
use crate::hooks::ResidualWriter;
use crate::model::{Architecture, ModelConfig};
use crate::numbers::counted;

/// An intervention on a component of the model from one step until another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Intervention {
    /// The component: a head such as `"0.2"` (layer and head, from 0) or `"cross.0.2"`, or a feed-forward layer such as
    /// `"0.mlp"`.
    #[schemars(with = "String")]
    pub at: ResidualWriter,
    /// What happens to the component.
    pub kind: InterventionKind,
    /// `clamp_pattern`: the attention pattern.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<ClampedPattern>,
    /// The first step with the intervention, from 0.
    #[serde(default)]
    pub from: usize,
    /// The first step without it. Omitted: it lasts until the end of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<usize>,
}

choices! {
    /// The effect of an intervention.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum InterventionKind {
        /// The output becomes its mean over the batch and its positions, and the component gets no gradient.
        MeanAblate,
        /// The output becomes zero, and the component gets no gradient.
        ZeroAblate,
        /// The attention weights of a head become those of a fixed pattern. Its values and its output still learn, but its
        /// queries and keys get no gradient (Singh et al., 2024, arXiv 2404.07129).
        ClampPattern,
        /// The weights stay as they are: no update and no weight decay. Gradients still pass through the component.
        Freeze,
    }
}

choices! {
    /// An attention pattern that depends on positions only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ClampedPattern {
        /// Each query attends to the previous token, and the first one to itself.
        PreviousToken,
        /// Each query attends to its own position.
        CurrentToken,
        /// Each query attends to the first token.
        FirstToken,
    }
}

impl ClampedPattern {
    /// Returns the key that a query attends to.
    pub fn key_of(self, query: usize) -> usize {
        match self {
            Self::PreviousToken => query.saturating_sub(1),
            Self::CurrentToken => query,
            Self::FirstToken => 0,
        }
    }
}

impl Intervention {
    /// Returns the steps with the intervention.
    pub fn steps(&self) -> Range<usize> {
        self.from..self.until.unwrap_or(usize::MAX)
    }

    /// Checks that the model has the component, and that the intervention applies to it.
    ///
    /// # Errors
    /// An error that names the key, the value and what is possible.
    fn check(&self, index: usize, model: &ModelConfig, data: &DataConfig) -> Result<()> {
        let refuse = |key: &str, value: String, problem: String| {
            Err(Error::key(format!("training.intervene[{index}].{key}"), value, problem))
        };
        if let Some(until) = self.until.filter(|until| *until <= self.from) {
            return refuse(
                "until",
                until.to_string(),
                format!("must be after the first step, {}", self.from),
            );
        }
        if let Some(problem) = missing(self.at, model) {
            return refuse("at", format!("\"{}\"", self.at), problem);
        }
        if let Some(problem) = self.unsuitable_kind(model) {
            return refuse("kind", format!("\"{}\"", self.kind), problem);
        }
        match self.pattern.map(|pattern| (pattern, self.unsuitable_pattern(pattern, model, data))) {
            Some((pattern, Some(problem))) => refuse("pattern", format!("\"{pattern}\""), problem.into()),
            _ => Ok(()),
        }
    }

    /// Returns why the kind of the intervention does not suit its component, or `None` if it does.
    fn unsuitable_kind(&self, model: &ModelConfig) -> Option<String> {
        let has_own_keys = [0, model.heads].contains(&model.key_value_heads);
        match (self.kind, self.at) {
            (InterventionKind::ClampPattern, ResidualWriter::Head(..)) if self.pattern.is_none() => {
                let patterns = ClampedPattern::ALL.map(|pattern| format!("\"{pattern}\"")).join(", ");
                Some(format!("needs the key `pattern`: {patterns}"))
            }
            (InterventionKind::ClampPattern, ResidualWriter::Head(..)) => None,
            (InterventionKind::ClampPattern, at) => Some(format!("needs a head of the self-attention, not {at}")),
            (InterventionKind::Freeze, ResidualWriter::Cross(..)) => {
                Some("is not supported for heads of the cross-attention".into())
            }
            (InterventionKind::Freeze, ResidualWriter::Head(..)) if !has_own_keys => {
                Some("needs heads with their own keys and values; set model.key_value_heads to the number of heads".into())
            }
            _ => None,
        }
    }

    /// Returns why the pattern cannot be clamped, or `None` if it can.
    fn unsuitable_pattern(
        &self,
        pattern: ClampedPattern,
        model: &ModelConfig,
        data: &DataConfig,
    ) -> Option<&'static str> {
        let reach = match pattern {
            ClampedPattern::CurrentToken => 1,
            ClampedPattern::PreviousToken => 2,
            ClampedPattern::FirstToken => usize::MAX,
        };
        if self.kind != InterventionKind::ClampPattern {
            Some("has no effect; it needs kind = \"clamp_pattern\"")
        } else if data.text_documents() == Documents::Separate {
            Some("ignores the boundaries of data.documents = \"separate\"; join the documents")
        } else if model.window.is_some_and(|window| window < reach) {
            Some("attends outside of model.window")
        } else {
            None
        }
    }
}

/// Returns why a component is not part of the model, or `None` if it is.
fn missing(component: ResidualWriter, model: &ModelConfig) -> Option<String> {
    let (layers, has_feed_forward) = match model.architecture {
        Architecture::OneLayer => (1, false),
        Architecture::Decoder | Architecture::EncoderDecoder => (model.layers, true),
    };
    let has_cross = model.architecture == Architecture::EncoderDecoder;
    let exists = match component {
        ResidualWriter::Head(layer, head) => layer < layers && head < model.heads,
        ResidualWriter::Cross(layer, head) => has_cross && layer < layers && head < model.heads,
        ResidualWriter::FeedForward(layer) => has_feed_forward && layer < layers,
    };
    (!exists).then(|| {
        let feed_forward = if has_feed_forward { "" } else { " and no feed-forward layer" };
        let (layers, heads) = (counted(layers, "layer"), counted(model.heads, "head"));
        format!("is not part of the model, which has {layers} of {heads}{feed_forward}")
    })
}

/// Checks the interventions of a run.
///
/// # Errors
/// If one does not apply to the model or the data, or if two change the same component in the same step.
pub(super) fn check(interventions: &[Intervention], model: &ModelConfig, data: &DataConfig) -> Result<()> {
    for (index, intervention) in interventions.iter().enumerate() {
        intervention.check(index, model, data)?;
        let (steps, at) = (intervention.steps(), intervention.at);
        let overlaps = |other: &Intervention| {
            other.at == at && other.steps().start < steps.end && steps.start < other.steps().end
        };
        if let Some(other) = interventions[..index].iter().position(overlaps) {
            let problem = format!("is also changed by training.intervene[{other}] in some of these steps");
            return Err(Error::key(format!("training.intervene[{index}].at"), format!("\"{at}\""), problem));
        }
    }
    Ok(())
}
