//! Conversations in the format of a tokenizer's chat template, as transformers renders it.
//!
//! The template is `chat_template.jinja` next to the tokenizer, or `chat_template` in its `tokenizer_config.json`. What
//! the template writes for a turn of the assistant after the prompt for its answer is the answer, whose targets count.

use std::collections::BTreeSet;
use std::path::Path;

use minijinja::{Environment, Error as TemplateError, ErrorKind, context};
use serde_json::{Map, Value};

use super::part::Part;
use super::targets;
use crate::data::excerpt::excerpt;
use crate::data::vocabulary::ASSISTANT;
use crate::error::{Error, Result};
use crate::files::{Text, read_given_json};

/// The name of the template in its environment.
const NAME: &str = "chat";

/// A chat template, with the special tokens that it may use.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    environment: Environment<'static>,
    tokens: [String; 2],
}

impl ChatTemplate {
    /// Reads the template next to the file of a tokenizer; `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read, or if the template is invalid.
    pub fn next_to(tokenizer: &Path) -> Result<Option<Self>> {
        let folder = tokenizer.parent().unwrap_or(Path::new("."));
        let [file, config] = ["chat_template.jinja", "tokenizer_config.json"].map(|name| folder.join(name));
        let config: Map<String, Value> = match config.is_file() {
            true => read_given_json(&config, "an object, as transformers writes it")?,
            false => Map::new(),
        };
        let template = match file.is_file() {
            true => Some(Text::open(&file)?.read_to_string()?),
            false => config.get("chat_template").and_then(default_template).map(str::to_string),
        };
        let Some(template) = template else { return Ok(None) };
        let mut environment = Environment::new();
        // The settings of transformers.
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function(
            "raise_exception",
            |message: String| -> std::result::Result<String, TemplateError> {
                Err(TemplateError::new(ErrorKind::InvalidOperation, message))
            },
        );
        environment.add_template_owned(NAME, template).map_err(|error| {
            Error::file(folder, format!("has a chat template that cannot be read: {error}; correct it"))
        })?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_string();
        let token = |key: &str| match config.get(key) {
            Some(Value::Object(token)) => text(token.get("content")),
            token => text(token),
        };
        Ok(Some(Self { environment, tokens: [token("bos_token"), token("eos_token")] }))
    }

    /// Returns the parts of a conversation, given the role and the text of each turn.
    ///
    /// # Errors
    /// Returns a message if the template fails, or does not mark where answers begin.
    pub fn parts(&self, turns: &[(String, String)]) -> std::result::Result<Vec<Part>, String> {
        let (mut parts, mut written) = (Vec::new(), String::new());
        for (index, (role, _)) in turns.iter().enumerate() {
            let is_answer = role == ASSISTANT;
            // Some templates require a user's turn after the system's.
            let is_system = role == "system" && index + 1 < turns.len();
            if is_system {
                continue;
            }
            if is_answer {
                let prompt = self.render(&turns[..index], true)?;
                parts.push(Part::text(added(&written, &prompt)?, false));
                written = prompt;
            }
            let text = self.render(&turns[..=index], false)?;
            parts.push(Part::text(added(&written, &text)?, is_answer));
            written = text;
        }
        Ok(parts)
    }

    fn render(&self, turns: &[(String, String)], asks: bool) -> std::result::Result<String, String> {
        let message = |(role, content): &(String, String)| context! { role, content };
        let messages: Vec<minijinja::Value> = turns.iter().map(message).collect();
        let [bos_token, eos_token] = &self.tokens;
        let template = self.environment.get_template(NAME).map_err(|error| error.to_string())?;
        let rendered =
            template.render(context! { messages, bos_token, eos_token, add_generation_prompt => asks });
        rendered.map_err(|error| match error.kind() {
            ErrorKind::UnknownFunction | ErrorKind::UnknownFilter | ErrorKind::UnknownMethod => format!(
                "has a conversation, but the chat template of the tokenizer uses what is not available here: {error}; \
                 replace it in the template, for example by the text that it returns"
            ),
            _ => format!("has a conversation that the chat template of the tokenizer refuses: {error}; correct it, or remove it"),
        })
    }
}

/// Returns the role and the text of each turn of a conversation: objects with `role` and `content` in the field `name`,
/// or else in `messages`. `None` for other values.
pub(super) fn turns(
    value: &Value,
    name: Option<&str>,
) -> Option<std::result::Result<Vec<(String, String)>, String>> {
    let turns = value.as_object()?.get(name.unwrap_or("messages"))?.as_array()?;
    let is_turn = |turn: &Value| turn.get("role").is_some_and(Value::is_string);
    if turns.is_empty() || !turns.iter().all(is_turn) {
        return None;
    }
    let turn = |(turn, number): (&Value, usize)| {
        let [role, text] = ["role", "content"].map(|key| turn.get(key).and_then(Value::as_str));
        if let Some(members) = turn.as_object() {
            targets::check_turn(members).map_err(|problem| format!("turn {number}: {problem}"))?;
        }
        let problem = || {
            format!("has a turn {number} without a text in `content`; write one, or remove the conversation")
        };
        Ok((role.unwrap_or_default().to_string(), text.ok_or_else(problem)?.to_string()))
    };
    Some(turns.iter().zip(1..).map(turn).collect())
}

/// Returns the fields of a conversation and of its turns that are not read, except for those without content.
pub(super) fn unread(value: &Value, name: Option<&str>) -> BTreeSet<String> {
    let name = name.unwrap_or("messages");
    let fields = |value: &Value, read: &[&str], of: &str| -> Vec<String> {
        let members = value.as_object().into_iter().flatten();
        let unread = members.filter(|(name, value)| {
            !read.contains(&name.as_str()) && !targets::is_split(name) && targets::has_content(value)
        });
        unread.map(|(name, _)| format!("`{}`{of}", excerpt(name))).collect()
    };
    let turns = value.get(name).and_then(Value::as_array).into_iter().flatten();
    let of_turns = turns.flat_map(|turn| fields(turn, &["role", "content"], " of turns"));
    fields(value, &[name], "").into_iter().chain(of_turns).collect()
}

/// Returns the fields of a pair that usually belong to its source but are not among the fields `read`.
pub(super) fn unread_context(members: &Map<String, Value>, read: &[&str]) -> BTreeSet<String> {
    const CONTEXT: [&str; 7] =
        ["context", "document", "history", "input", "passage", "system", "system_prompt"];
    let unread = members.iter().filter(|(name, value)| {
        let name = name.as_str();
        CONTEXT.contains(&name) && !read.contains(&name) && targets::has_content(value)
    });
    unread.map(|(name, _)| format!("`{name}`")).collect()
}

/// Returns what `text` adds to the text that was written `before`.
fn added<'t>(before: &str, text: &'t str) -> std::result::Result<&'t str, String> {
    text.strip_prefix(before).ok_or_else(|| {
        "has a conversation whose beginning the chat template of the tokenizer writes differently after later turns, so \
         the beginnings of answers are unknown; use `data.tokens` = \"characters\" or \"bpe\""
            .to_string()
    })
}

/// Returns the default template of a `tokenizer_config.json`, which may name several.
fn default_template(value: &Value) -> Option<&str> {
    let named = |template: &&Value| template["name"] == "default";
    value.as_str().or_else(|| value.as_array()?.iter().find(named)?["template"].as_str())
}
