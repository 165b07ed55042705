//! Excerpts of file contents for error messages.

use crate::numbers::counted;

/// The maximum length of an excerpt, in characters.
const MAX_CHARACTERS: usize = 40;

/// Returns the value on one line, truncated if it is long.
pub(crate) fn excerpt(value: &str) -> String {
    crate::error::excerpt(value, MAX_CHARACTERS)
}

/// Returns names as a list for a message, shortened if there are many.
pub(crate) fn listed<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    const MAX_LISTED: usize = 20;
    let names: Vec<&str> = names.into_iter().collect();
    let more = names.len().checked_sub(MAX_LISTED + 1).map(|more| format!("{} more", more + 1));
    names.iter().take(MAX_LISTED).map(|name| excerpt(name)).chain(more).collect::<Vec<_>>().join(", ")
}

/// Returns a suffix for a message that names only the first of several cases, such as ` (and 2 more files)`. It is
/// empty if `more` is 0.
pub(crate) fn and_more(more: usize, noun: &str) -> String {
    match more {
        0 => String::new(),
        _ => format!(" (and {})", counted(more, &format!("more {noun}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_single_line_and_truncated() {
        assert_eq!(excerpt("1\n\"2\"\t'ä'"), "1\\n\"2\"\\t'ä'");
        assert_eq!(excerpt(&"ä\n".repeat(1000)), "ä\\n".repeat(20) + "…");
        assert_eq!(excerpt(&"x".repeat(40)), "x".repeat(40));
    }
}
