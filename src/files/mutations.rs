//! Damaged copies of JSON values, which test that readers validate the contents of a file.

use serde_json::{Value, json};

/// Returns copies of `value`, each with one list emptied, shortened or extended, or with one number, string or boolean
/// replaced. In long lists, only the first and the last element are changed.
pub(crate) fn mutations(value: &Value) -> Vec<(String, Value)> {
    let mut pointers = Vec::new();
    collect(value, String::new(), &mut pointers);
    let changed = |pointer: String| {
        let old = value.pointer(&pointer).expect("it was collected here").clone();
        replacements(&old).into_iter().map(move |new| {
            let mut copy = value.clone();
            let description = format!("{pointer} = {}", new.to_string().chars().take(60).collect::<String>());
            *copy.pointer_mut(&pointer).expect("it was collected here") = new;
            (description, copy)
        })
    };
    pointers.into_iter().flat_map(changed).collect()
}

fn collect(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Array(values) => {
            let ends = [0, values.len().saturating_sub(1)];
            let ends = if ends[1] == 0 { &ends[..1] } else { &ends[..] };
            for &at in ends.iter().filter(|&&at| at < values.len()) {
                collect(&values[at], format!("{pointer}/{at}"), pointers);
            }
        }
        Value::Object(values) => {
            values.iter().for_each(|(name, value)| collect(value, format!("{pointer}/{name}"), pointers));
        }
        _ => {}
    }
    pointers.push(pointer);
}

fn replacements(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(values) => {
            let shorter = values[..values.len().saturating_sub(1)].to_vec();
            let longer = values.iter().chain(values.last()).cloned().collect::<Vec<_>>();
            vec![json!([]), json!(shorter), json!(longer)]
        }
        Value::Number(_) => vec![json!(0), json!(-1), json!(1u64 << 62), json!(1e300), Value::Null],
        Value::String(_) => vec![json!(""), json!("x".repeat(65_536))],
        Value::Bool(value) => vec![json!(!value)],
        Value::Null | Value::Object(_) => Vec::new(),
    }
}
