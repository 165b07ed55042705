//! Two numbers and their sum, with the least significant digit of the sum first.
//!
//! Both numbers have `data.digits` uniformly drawn digits, written with the most significant digit first, as usual. The
//! sum has one more digit and is written in reverse, so that each carry is known before the digit that it changes. With
//! 3 digits, 123 + 907 = 1030 becomes:
//!
//! ```text
//! 1 2 3 + 9 0 7 = 0 3 0 1
//!   ? ? ↑ ? ? ? ↑ ↑ ↑ ↑ ↑      the numbers determine the sum
//! ```
//!
//! **Mechanism of a solved model:** for each digit of the sum, heads fetch the digits with the same place value from
//! both numbers, and a feed-forward layer adds them. Another head determines the carry from the next lower digit
//! (Quirke & Barez 2023, "Understanding addition in transformers").
//!
//! **Floor:** of the `3 n + 2` targets, `2 n - 1` digits of the numbers are random. The floor is
//! `(2 n - 1) ln 10 / (3 n + 2)` nats, both expected and on every set.
//!
//! The task ignores `data.vocab` and `data.length`: it has ten digits and two signs, and the number of digits
//! determines the length of a sample.

use rand::RngExt;

use super::FixedProbabilities;
use crate::data::config::DataConfig;
use crate::data::vocabulary::Vocabulary;
use crate::error::{Error, Result};

const PLUS: u32 = 10;
const EQUALS: u32 = 11;

/// Creates the task `addition` for numbers of `data.digits` digits.
///
/// # Errors
/// Returns an error if the number of digits is zero or above 1000.
pub(super) fn task(config: &DataConfig) -> Result<FixedProbabilities> {
    let n = config.digits;
    Error::check_range("data.digits", n, 1, 1000)?;
    let symbols = ('0'..='9').chain(['+', '=']).map(String::from).collect();
    // Target t is token t + 1. The random targets are the first number without its first digit, and the second number.
    let mut probabilities = vec![1.0; 3 * n + 2];
    probabilities[..n - 1].fill(0.1);
    probabilities[n..2 * n].fill(0.1);
    Ok(FixedProbabilities::new(
        Vocabulary::symbols(symbols, None)?,
        probabilities,
        move |random, sample| {
            sample.fill_with(|| random.random_range(0..10));
            sample[n] = PLUS;
            sample[2 * n + 1] = EQUALS;
            add(sample, n);
        },
        move |sample| {
            let clean = sample.to_vec();
            // Carries only affect higher digits, so the first digit of the sum that changes has the same place value as
            // this digit.
            let digit = n / 2;
            sample[digit] = (sample[digit] + 1) % 10;
            add(sample, n);
            let sum = 2 * n + 2;
            let first =
                clean[sum..].iter().zip(&sample[sum..]).position(|(clean, corrupted)| clean != corrupted)?;
            Some(sum + first - 1)
        },
    ))
}

/// Writes the sum of the two numbers, of `n` digits each, after them.
fn add(sample: &mut [u32], n: usize) {
    let (numbers, sum) = sample.split_at_mut(2 * n + 2);
    let mut carry = 0;
    for digit in 0..n {
        let total = numbers[n - 1 - digit] + numbers[2 * n - digit] + carry;
        sum[digit] = total % 10;
        carry = total / 10;
    }
    sum[n] = carry;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::seed::{Purpose, generator};
    use crate::data::tasks::SequenceTask;
    use crate::data::tasks::enumeration::assert_agrees;

    fn addition(digits: usize) -> FixedProbabilities {
        task(&DataConfig { digits, ..DataConfig::default() }).unwrap()
    }

    #[test]
    fn floor_matches_enumeration_of_sums() {
        let sum = |a: u32, b: u32| vec![a, PLUS, b, EQUALS, (a + b) % 10, (a + b) / 10];
        let all: Vec<_> = (0..100).map(|n| (sum(n / 10, n % 10), 0.01)).collect();
        assert_agrees(&addition(1), &all);
        let sum = |a: u32, b: u32| {
            let text = format!("{a:02}+{b:02}={}", format!("{:03}", a + b).chars().rev().collect::<String>());
            addition(2).vocabulary().encode(&text).unwrap()
        };
        let all: Vec<_> = (0..10_000).map(|n| (sum(n / 100, n % 100), 1e-4)).collect();
        assert_agrees(&addition(2), &all);
    }

    #[test]
    fn sums_of_many_digits_are_right() {
        let task = addition(17);
        let mut sample = vec![0; task.tokens()];
        task.draw(&mut generator(3, Purpose::TrainingSet, [0, 0]), &mut sample);
        let number = |digits: &mut dyn Iterator<Item = &u32>| digits.fold(0, |n, &d| 10 * n + u64::from(d));
        let (a, b) = (number(&mut sample[..17].iter()), number(&mut sample[18..35].iter()));
        assert_eq!(a + b, number(&mut sample[36..].iter().rev()));
    }

    #[test]
    fn corruption_changes_the_middle_digit_and_the_sum() {
        // With 4 digits and more, the middle digit comes after the first three tokens.
        for n in [3, 4, 7] {
            let task = addition(n);
            let mut random = generator(5, Purpose::TrainingSet, [0, 0]);
            for _ in 0..100 {
                let mut clean = vec![0; task.tokens()];
                task.draw(&mut random, &mut clean);
                let mut expected = clean.clone();
                expected[n / 2] = (clean[n / 2] + 1) % 10;
                add(&mut expected, n);
                let first = (2 * n + 2..clean.len()).find(|&at| expected[at] != clean[at]).unwrap();
                let mut corrupted = clean.clone();
                assert_eq!(task.corrupt(&mut corrupted), Some(first - 1));
                assert_eq!(corrupted, expected);
            }
        }
    }

    #[test]
    fn numbers_without_digits_are_refused() {
        let error = task(&DataConfig { digits: 0, ..DataConfig::default() }).err().unwrap();
        assert_eq!(error.to_string(), "`data.digits` = 0 must be in [1, 1000]");
    }
}
