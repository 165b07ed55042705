//! Number formats of counts, sizes, times and losses.

use std::{fmt, time::Duration};

/// Formats a count with thousands separators: `12,345`.
pub fn thousands(count: f64) -> String {
    let digits = (count.round_ties_even() as u64).to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// Formats a count with its noun, given in the singular: `1 token`, `12,345 tokens`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(count as f64))
}

/// Formats a part of a count: `1,024 of 12,345 tokens`.
pub fn part_of(part: usize, total: usize, noun: &str) -> String {
    format!("{} of {}", thousands(part as f64), counted(total, noun))
}

/// Formats a share in percent: `0.384` is `38 %`.
pub fn percent(share: f64) -> String {
    format!("{} %", fixed(100.0 * share, 0))
}

/// Formats seconds as a clock: `0:07`, `12:34`, `1:02:03`, and from one day on `3 d 1:02:03`.
pub fn clock(seconds: f64) -> String {
    let total = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default().as_secs();
    let (days, hours, minutes, seconds) = (total / 86_400, total / 3600 % 24, total / 60 % 60, total % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days} d {hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Formats a difference with its sign: `+0.0123` or, with a true minus sign, `−0.0123`. A difference that rounds to zero has a
/// plus sign. A large difference is in scientific notation: `+7.2e8`.
pub fn signed(difference: f64, decimals: usize) -> String {
    let text = match difference.abs() >= 1e5 {
        true => format!("{difference:+.1e}"),
        false => format!("{difference:+.decimals$}"),
    };
    match text.strip_prefix('-') {
        Some(zero) if zero.parse() == Ok(0.0) => format!("+{zero}"),
        Some(size) => format!("−{size}"),
        None => text,
    }
}

/// Formats a number with a true minus sign: `−0.0123`. A number that rounds to zero has no sign.
pub fn fixed(value: f64, decimals: usize) -> String {
    signed(value, decimals).trim_start_matches('+').to_string()
}

/// Formats the distance of a loss from the floor: `0.0123 above the floor`.
pub fn floor_gap(loss: f64, floor: f64, decimals: usize) -> String {
    let gap = signed(loss - floor, decimals);
    match gap.strip_prefix('−') {
        Some(size) => format!("{size} below the floor"),
        None => format!("{} above the floor", gap.trim_start_matches('+')),
    }
}

/// A number of bytes, displayed as `3 MB`, `1.2 GB` or `400 TB`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub f64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = self;
        match bytes {
            ..1e9 => write!(f, "{:.0} MB", (bytes / 1e6).ceil()),
            1e9..1e13 => write!(f, "{:.1} GB", bytes / 1e9),
            _ => write!(f, "{:.0} TB", bytes / 1e12),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_clocks_are_human_readable() {
        assert_eq!(
            ["7", "999", "1,000", "12,345", "1,234,567"],
            [7.0, 999.0, 1e3, 12_345.0, 1_234_567.0].map(thousands).each_ref().map(String::as_str)
        );
        let tokens = [0, 1, 2, 12_345].map(|count| counted(count, "token"));
        assert_eq!(tokens, ["0 tokens", "1 token", "2 tokens", "12,345 tokens"]);
        assert_eq!(part_of(1_024, 12_345, "token"), "1,024 of 12,345 tokens");
        assert_eq!(
            ["0:07", "12:34", "1:02:03", "3 d 3:32:05"],
            [7.0, 754.0, 3_723.0, 271_925.0].map(clock).each_ref().map(String::as_str)
        );
        assert_eq!(clock(f64::NAN), "0:00");
        assert_eq!(clock(f64::INFINITY), "0:00");
    }

    #[test]
    fn byte_counts_are_human_readable() {
        let shown = [1.0, 2.5e6, 1.25e9, 4e14].map(|bytes| Bytes(bytes).to_string());
        assert_eq!(shown, ["1 MB", "3 MB", "1.2 GB", "400 TB"]);
    }

    #[test]
    fn rounded_zeros_are_never_negative() {
        assert_eq!(floor_gap(1.000_01, 1.0, 4), "0.0000 above the floor");
        assert_eq!(floor_gap(0.999_99, 1.0, 4), "0.0000 above the floor");
        assert_eq!(floor_gap(0.9, 1.0, 4), "0.1000 below the floor");
        let shown = [1e-7, -1e-7, -6e-7, f64::NEG_INFINITY].map(|gap| signed(gap, 6));
        assert_eq!(shown, ["+0.000000", "+0.000000", "−0.000001", "−inf"]);
        assert_eq!(
            [-4e-4, -6e-4, 6e-4, f64::NAN].map(|value| fixed(value, 3)),
            ["0.000", "−0.001", "0.001", "NaN"]
        );
    }
}
