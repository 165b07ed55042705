//! The neurons of an explanation, as a table.

use crate::analysis::circuit::{ContextSource, Explanation, Neuron, NeuronAnalysis, NeuronContext};
use crate::data::Vocabulary;
use crate::error::excerpt;
use crate::numbers::{fixed, signed, thousands};
use crate::terminal::say;

/// The number of contexts that the table shows for each neuron.
const MAX_SHOWN: usize = 3;
/// The maximum number of characters of a context in the table.
const MAX_WIDTH: usize = 40;

/// Prints the neurons, if there are any.
pub fn print(explanation: &Explanation, vocabulary: &Vocabulary) {
    let NeuronAnalysis { neurons, tested, of_model, neuron_contexts } = &explanation.neurons;
    let (Some(source), false) = (neuron_contexts, neurons.is_empty()) else { return };
    let gain = &explanation.gain;
    let has_intervals = neurons.iter().any(|it| it.interval.is_some());
    let place = match source {
        ContextSource::ValidationSet => "in the validation set",
        ContextSource::StoredSequences => "in the stored validation sequences",
        ContextSource::Input => "in the explained input, as the model has no validation set",
    };
    say(&format!(
        "Neurons (layer.mlp.neuron) with the largest effects of the {} that were ablated, of {}, in the order of two estimates: the change of the {} when each is {}{}, and the tokens at the end of which it is most active {place}, with its activation:",
        thousands(*tested as f64),
        thousands(*of_model as f64),
        gain.quantity.name(),
        gain.ablation.participle(),
        if has_intervals { ", with its 95 % interval" } else { "" },
    ));
    let names: Vec<String> = neurons.iter().map(|it| format!("{}.mlp.{}", it.layer, it.neuron)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let number = |change: f64| signed(change, 4);
    for (name, Neuron { ablated, interval, contexts, .. }) in names.iter().zip(neurons) {
        let shown = contexts.iter().take(MAX_SHOWN).map(|context| shown(context, vocabulary));
        let contexts: Vec<String> = shown.collect();
        let interval = interval.map(|interval| interval.map(number));
        let interval = interval.map(|[low, high]| format!(" ({low} to {high})")).unwrap_or_default();
        let change = number(ablated - gain.model);
        say(&format!("  {name:<width$}  {change}{interval}  {}", contexts.join("  ")));
    }
    if let Some(note) = note_on_chance(explanation) {
        say(&note);
    }
}

/// Names the neurons that change the quantity no more than one with random weights does. They are the last ones.
fn note_on_chance(Explanation { neurons, gain, random_effects, .. }: &Explanation) -> Option<String> {
    let random = random_effects.as_ref()?.neurons?.largest;
    let by_chance = neurons.neurons.iter().filter(|it| (it.ablated - gain.model).abs() <= random).count();
    let which = match (by_chance, neurons.neurons.len()) {
        (0, _) => return None,
        (count, all) if count == all => "None of these neurons changes it more".to_string(),
        (1, _) => "The last of these neurons changes it no more".to_string(),
        (count, _) => format!("The last {count} of these neurons change it no more"),
    };
    Some(format!("{which} than a neuron with random weights does, which is {}.", fixed(random, 4)))
}

/// Formats a context as the end of its text that fits into the table, with the activation.
fn shown(NeuronContext { tokens, activation }: &NeuronContext, vocabulary: &Vocabulary) -> String {
    let texts = (0..tokens.len()).map(|first| (first, vocabulary.decode(&tokens[first..])));
    let fits =
        |(first, text): &(usize, String)| text.chars().count() <= MAX_WIDTH || first + 1 == tokens.len();
    let (first, text) = texts.into_iter().find(fits).unwrap_or_default();
    let start = if first > 0 { "…" } else { "" };
    format!("`{start}{}` {}", excerpt(&text, MAX_WIDTH), fixed(*activation, 2))
}
