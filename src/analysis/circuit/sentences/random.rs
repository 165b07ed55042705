//! The effects of random weights as sentences.

use super::heads::after_layer;
use super::rounded;
use crate::analysis::circuit::chance::{RandomEffect, RandomEffects};
use crate::analysis::circuit::explanation::{Component, Explanation};
use crate::analysis::circuit::kind::HeadKind;
use crate::analysis::circuit::random::KindOfRandom;
use crate::numbers::{counted, fixed, thousands};

impl Explanation {
    /// Formats the effects of random weights in a model of this many components, and its largest scores of heads, as
    /// sentences.
    pub(in crate::analysis::circuit) fn describe_random(
        &self,
        effects: &RandomEffects,
        kinds: &[KindOfRandom],
        components: usize,
    ) -> Vec<String> {
        let quantity = self.gain.quantity.name();
        let pairs = self.views.patching.as_ref().map_or(0, |it| it.pairs);
        let mut sentences = Vec::new();
        sentences.extend(effects.circuit.map(|values| {
            let [model, circuit, ablated] = values.map(rounded);
            format!(
                "With random weights, the {quantity} is {model} for the model, {circuit} with all but the same {} {}, and \
                 {ablated} with all {}.",
                counted(self.components.len(), "component"),
                self.gain.ablation.participle(),
                self.gain.ablation.participle(),
            )
        }));
        sentences.extend(effects.copies.map(|losses| {
            let [first, second] = losses.map(rounded);
            format!(
                "With random weights, the loss is {first} nats on the first copy and {second} nats on the second."
            )
        }));
        let ablating = self.gain.ablation.verb();
        sentences.extend(describe_effects(effects, (quantity, ablating), [components, pairs]));
        sentences.extend(self.describe_small(effects));
        sentences.extend(describe_scores(kinds));
        sentences.extend(self.describe_chance(kinds));
        sentences
    }

    /// Counts the effects that are no larger than with random weights.
    fn describe_small(&self, effects: &RandomEffects) -> Option<String> {
        let count = |ablated: Vec<f64>, largest: Option<f64>, what: &str| {
            let largest = largest?;
            let small =
                ablated.iter().filter(|ablated| (*ablated - self.gain.model).abs() <= largest).count();
            (small > 0)
                .then(|| format!("{} of the {}", thousands(small as f64), counted(ablated.len(), what)))
        };
        let of_components = self.components.iter().map(|it| it.ablated).collect();
        let of_edges = self.edges.iter().map(|it| it.ablated).collect();
        let of_paths = self.views.direct.iter().map(|it| it.ablated).collect();
        let paths = count(of_paths, effects.direct.map(|it| it.largest), "path");
        let small = [
            count(of_components, Some(effects.largest), "component"),
            count(of_edges, effects.connections.map(|it| it.largest), "connection"),
            paths.map(|paths| paths + " to the output"),
        ];
        let small = small.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        (!small.is_empty()).then(|| {
            format!(
                "The effects of {small} are no larger than those with random weights, so they may be due to chance."
            )
        })
    }

    /// Names the heads whose kinds may be due to chance.
    fn describe_chance(&self, kinds: &[KindOfRandom]) -> Option<String> {
        let copying = kinds.iter().find(|it| it.kind == HeadKind::Copying).map(|it| it.score);
        let heads = self.components.iter().filter_map(|component| Some((component, component.head?)));
        let heads = heads.flat_map(|(Component { layer, cross, kinds, kind_scores, .. }, head)| {
            let by_chance = kind_scores.iter().filter(|it| it.may_be_chance()).map(|it| it.kind);
            let own = self.heads.weights[*layer][head].copying;
            let copies = kinds.contains(&HeadKind::Copying) && copying.is_some_and(|random| random >= own);
            by_chance
                .chain(copies.then_some(HeadKind::Copying))
                .map(move |kind| format!("{} of layer {}", name(kind), after_layer([*layer, head], *cross)))
        });
        let heads = heads.collect::<Vec<_>>().join(", ");
        (!heads.is_empty()).then(|| {
            format!(
                "These kinds are no evidence of learning, because a head with random weights scores as high: {heads}."
            )
        })
    }
}

fn name(kind: HeadKind) -> String {
    kind.name().replace('_', "-")
}

/// Formats the largest scores of heads.
fn describe_scores(kinds: &[KindOfRandom]) -> Option<String> {
    let score = |KindOfRandom { kind, cross, score }: &KindOfRandom| {
        let cross = if *cross { "cross-attention " } else { "" };
        format!("{cross}{} {}", name(*kind), rounded(*score))
    };
    let scores = kinds.iter().map(score).collect::<Vec<_>>().join(", ");
    (!scores.is_empty()).then(|| format!("With random weights, the largest scores of heads are: {scores}."))
}

/// Formats the effects. The sizes are the number of components of the model, and of pairs of sequences.
fn describe_effects(
    effects: &RandomEffects,
    (quantity, ablating): (&str, &str),
    [all, pairs]: [usize; 2],
) -> Vec<String> {
    let RandomEffects {
        largest,
        components,
        targets,
        connections,
        direct,
        neurons,
        patching,
        attribution,
        ..
    } = effects;
    let chosen = match *components < all {
        true => format!(" with the largest estimates, of {},", thousands(all as f64)),
        false => String::new(),
    };
    let mut sentences = vec![format!(
        "With random weights, {ablating} any one of the {}{chosen} changes the {quantity} by at most {} on the same {}.",
        counted(*components, "component"),
        fixed(*largest, 2),
        counted(*targets, "target"),
    )];
    let of = |of_what: &str, what: &str, RandomEffect { largest, tested }: RandomEffect, digits| {
        format!(
            "With random weights, {ablating} {of_what}any one of {} changes the {quantity} by at most {}.",
            counted(tested, what),
            fixed(largest, digits)
        )
    };
    sentences.extend(connections.map(|it| of("", "connection", it, 2)));
    sentences.extend(direct.map(|it| of("the path to the output of ", "component", it, 2)));
    sentences.extend(neurons.map(|it| of("", "neuron", it, 4)));
    sentences.extend(patching.map(|RandomEffect { largest, tested }| {
        format!(
            "With random weights, restoring any one of {} in {} changes the logit difference by at most {}.",
            counted(tested, "component"),
            counted(pairs, "pair"),
            fixed(largest, 2)
        )
    }));
    sentences.extend(attribution.map(|RandomEffect { largest, tested }| {
        format!(
            "With random weights, the largest mean contribution of {} to the logits is {}.",
            counted(tested, "component"),
            fixed(largest, 2)
        )
    }));
    sentences
}
