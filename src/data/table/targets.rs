//! Checks for fields of a record that mask or weight targets, or set their positions. All targets of a sequence count
//! equally, so records with such fields are refused. Fields that split the records into sets cause a warning.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::data::excerpt::excerpt;

/// Fields that weight targets, in addition to fields whose names end in `mask`, `masks` or `_weights`.
const WEIGHTS: [&str; 9] = [
    "weights",
    "loss_weight",
    "sample_weight",
    "token_weight",
    "sampleweight",
    "is_target",
    "is_prompt",
    "prompt_length",
    "prompt_len",
];

/// A mask that has no effect on the weights of targets.
const NEUTRAL_MASK: &str = "special_tokens_mask";

/// Fields that must be equal to the sequence itself.
const LABELS: [&str; 7] = ["label", "labels", "label_ids", "lm_labels", "target", "targets", "target_ids"];

/// The label of an ignored target in PyTorch and transformers.
const IGNORE_INDEX: i64 = -100;

/// Fields that divide a sequence into segments, each of which attention reads alone.
const SEGMENTS: [&str; 4] = ["segment_ids", "sequence_ids", "document_ids", "doc_ids"];

/// Fields that assign a record to the training or the validation set.
const SPLITS: [&str; 9] = [
    "split",
    "data_split",
    "fold",
    "partition",
    "subset",
    "is_train",
    "is_valid",
    "is_validation",
    "is_test",
];

/// Returns a warning if one of the columns or fields assigns records to sets, because the order of the records decides
/// instead. `is_read` is true if the columns are values of the sequences.
pub(super) fn warn_of_split<'n>(names: impl IntoIterator<Item = &'n str>, is_read: bool) -> Option<String> {
    let name = names.into_iter().find(|name| SPLITS.contains(&&*plain(name)))?;
    let name = excerpt(name);
    let usage = if is_read { "is read as a value in each row" } else { "is not read" };
    Some(format!(
        "`{name}` {usage}; to keep the split that `{name}` defines, write its validation rows into a file of their own, \
         and set `data.valid_path` to it"
    ))
}

/// Returns an error if another field of the record changes the meaning of its value `read`.
pub(super) fn check(others: &Map<String, Value>, read: &Value) -> Result<(), String> {
    match others.iter().find(|(name, value)| changes_meaning(name, value, read)) {
        None => Ok(()),
        Some((name, _)) => Err(refusal(name)),
    }
}

/// Returns an error if another field of the record than those `read` changes the meaning of their targets.
pub(super) fn check_others(members: &Map<String, Value>, read: &[&str]) -> Result<(), String> {
    let others = members.iter().filter(|(name, _)| !read.contains(&name.as_str()));
    let ids = read.first().and_then(|name| members.get(*name)).unwrap_or(&Value::Null);
    let changes = |(name, value): &(&String, &Value)| match ids {
        Value::Array(_) => changes_meaning(name, value, ids),
        _ if LABELS.contains(&&*plain(name)) => value.is_array(),
        _ => (is_mask(name) || plain(name) == "weight" && value.is_number()) && !keeps_all(name, value),
    };
    match others.into_iter().find(changes) {
        None => Ok(()),
        Some((name, _)) => Err(refusal(name)),
    }
}

/// Returns an error if a field of a turn excludes the turn from the loss, or is a part of what the turn says.
pub(super) fn check_turn(turn: &Map<String, Value>) -> Result<(), String> {
    const SWITCHES: [&str; 5] = ["train", "trainable", "loss", "learn", "is_target"];
    const MARKS: [&str; 5] = ["mask", "masked", "ignore", "ignored", "skip"];
    const CALLS: [&str; 2] = ["tool_calls", "function_call"];
    let is = |value: &Value, switch: bool| {
        value.as_bool() == Some(switch) || value.as_f64() == Some(f64::from(u8::from(switch)))
    };
    let excludes = |(name, value): &(&String, &Value)| {
        let name = plain(name);
        SWITCHES.contains(&&*name) && is(value, false) || MARKS.contains(&&*name) && is(value, true)
    };
    if let Some((name, _)) =
        turn.iter().find(|(name, value)| CALLS.contains(&name.as_str()) && has_content(value))
    {
        return Err(format!(
            "has a field `{name}`, which is not read, so the model would not learn the call; write the call as text into \
             `content`, or remove the conversation"
        ));
    }
    match turn.iter().find(excludes) {
        None => check_others(turn, &["content"]),
        Some((name, _)) => Err(refusal(name)),
    }
}

/// Returns an error if an object has a system prompt next to its turns.
pub(super) fn check_system(conversation: &Map<String, Value>) -> Result<(), String> {
    const PROMPTS: [&str; 3] = ["system", "system_prompt", "system_message"];
    match PROMPTS.into_iter().find(|name| conversation.get(*name).is_some_and(has_content)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "has a field `{name}` next to the turns, which is not read; write it as the first turn, with the role `system`"
        )),
    }
}

/// Returns true if a value is neither null nor empty.
pub(super) fn has_content(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    }
}

/// Returns true if a field of this name assigns records to sets, of which [`warn_of_split`] warns.
pub(super) fn is_split(name: &str) -> bool {
    SPLITS.contains(&&*plain(name))
}

/// Returns the error message for a field of this name.
pub(super) fn refusal(name: &str) -> String {
    if LABELS.contains(&&*plain(name)) {
        let name = excerpt(name);
        return format!(
            "has a field `{name}`, which changes the meaning of the targets, but labels are read next to token ids only, and \
             must be equal to the ids, or -100 where a target does not count; correct it, or remove `{name}` from every \
             record to train on all targets"
        );
    }
    let name = excerpt(name);
    format!(
        "has a field `{name}`, which changes the meaning of the targets, but all targets count equally here; \
         remove `{name}` from every record to train on all targets"
    )
}

/// Returns true if a field of this name weights targets.
pub(super) fn is_mask(name: &str) -> bool {
    let name = plain(name);
    let has_ending = ["mask", "masks", "_weights"].iter().any(|ending| name.ends_with(ending));
    name != NEUTRAL_MASK && (has_ending || WEIGHTS.contains(&&*name))
}

/// Returns true if a mask of this name keeps all targets. Masks of padding or of a prompt mark the positions to ignore.
pub(super) fn keeps_all(name: &str, value: &Value) -> bool {
    let name = name.to_ascii_lowercase();
    let marks_ignored = ["pad", "ignore", "prompt"].iter().any(|part| name.contains(part));
    let kept = if marks_ignored { 0.0 } else { 1.0 };
    match value {
        Value::Null => true,
        Value::Bool(marked) => f64::from(u8::from(*marked)) == kept,
        Value::Number(weight) => weight.as_f64() == Some(kept),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" => kept == 1.0,
            "false" => kept == 0.0,
            // A cell of CSV can hold the mask of a sequence.
            numbers => {
                let numbers = numbers.trim_matches(['[', ']']).split([',', ' ']).filter(|it| !it.is_empty());
                let mut numbers = numbers.peekable();
                numbers.peek().is_some() && numbers.all(|number| number.parse() == Ok(kept))
            }
        },
        Value::Array(all) => all.iter().all(|one| keeps_all(&name, one)),
        Value::Object(_) => false,
    }
}

/// Returns a name in lower case, with underscores.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

fn changes_meaning(name: &str, value: &Value, read: &Value) -> bool {
    let name = plain(name);
    // A field `weight` next to a sequence weights the sequence. A column `weight` of a table may be a measurement, so
    // `is_mask` does not cover this name.
    if is_mask(&name) || name == "weight" {
        return !keeps_all(&name, value);
    }
    if name == "position_ids" {
        let is_default =
            |all: &Vec<Value>| (0..).zip(all).all(|(position, id)| id.as_u64() == Some(position));
        return !value.is_null() && !value.as_array().is_some_and(is_default);
    }
    if SEGMENTS.contains(&&*name) {
        return value.as_array().is_some_and(|all| all.windows(2).any(|pair| pair[0] != pair[1]));
    }
    if ["seqlen", "seq_len"].iter().any(|part| name.contains(part)) || name.ends_with("lengths") {
        let lengths = || value.as_array().into_iter().flatten().filter(|length| length.as_u64() != Some(0));
        return lengths().count() > 1;
    }
    if LABELS.contains(&&*name) {
        let is_mask = || ignored(value, read).is_some();
        return value.is_array() && value != read && !is_mask() || value.as_i64() == Some(IGNORE_INDEX);
    }
    // An input of a decoder says that the sequence is the input of an encoder.
    name.starts_with("decoder_") && has_content(value)
        || name != NEUTRAL_MASK && parallel(value, read).is_some_and(|marks| marks_targets(marks, read))
}

/// Returns a list with one value for each token of `read`, unless both lists, or all values but -100, are equal.
fn parallel<'v>(value: &'v Value, read: &Value) -> Option<&'v [Value]> {
    let (list, tokens) = (value.as_array()?, read.as_array()?);
    let varies = list.windows(2).any(|pair| pair[0] != pair[1]) || list.iter().any(is_ignored);
    (list.len() == tokens.len() && varies && list != tokens).then_some(list)
}

/// Returns true if the values of a list with one value for each token mark some of them as ignored, under whatever name.
/// Zeros and ones next to a sequence of zeros and ones are another such sequence.
fn marks_targets(list: &[Value], read: &Value) -> bool {
    let is_binary =
        |value: &Value| value.is_boolean() || value.as_f64().is_some_and(|it| it == 0.0 || it == 1.0);
    let has_ignored = list.iter().any(is_ignored);
    let tokens = || read.as_array().into_iter().flatten();
    has_ignored && !tokens().any(|token| token.as_i64().is_some_and(|token| token < 0))
        || list.iter().all(is_binary) && !tokens().all(is_binary)
}

fn is_ignored(label: &Value) -> bool {
    label.as_i64() == Some(IGNORE_INDEX)
}

/// Returns the fields of an object, other than `name`, with one value for each token of the field `name`, except for those
/// whose names are known.
pub(super) fn unread_lists(value: &Value, name: Option<&str>) -> BTreeSet<String> {
    let Some((members, read)) = value.as_object().zip(name) else { return BTreeSet::new() };
    let tokens = members.get(read).unwrap_or(&Value::Null);
    let is_known = |name: &str| {
        let name = plain(name);
        is_mask(&name) || name == NEUTRAL_MASK || LABELS.contains(&&*name) || name == "position_ids"
    };
    let others = members.iter().filter(|(name, value)| {
        name.as_str() != read && !is_known(name) && parallel(value, tokens).is_some()
    });
    others.map(|(name, _)| format!("`{}`", excerpt(name))).collect()
}

/// Returns, for each token of the field `name` of an object, true if it counts as a target: false where a field of
/// labels has -100 (as in transformers). `None` if no field has the labels of the tokens.
pub(super) fn mask(value: &Value, name: Option<&str>) -> Option<Vec<bool>> {
    let members = value.as_object()?;
    let read = members.get(name?)?;
    let mut labels = members.iter().filter(|(name, _)| LABELS.contains(&&*plain(name)));
    labels.find_map(|(_, labels)| ignored(labels, read))
}

/// Returns, for each label, false if it is -100. `None` if labels and tokens differ otherwise.
fn ignored(labels: &Value, read: &Value) -> Option<Vec<bool>> {
    let (labels, read) = (labels.as_array()?, read.as_array()?);
    let counts = |(label, token): (&Value, &Value)| match label.as_i64() {
        Some(IGNORE_INDEX) => Some(false),
        _ => (label == token).then_some(true),
    };
    if labels.len() != read.len() {
        return None;
    }
    labels.iter().zip(read).map(counts).collect()
}
