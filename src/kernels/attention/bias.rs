//! Biases of scores that depend on the distance of query and key alone: ALiBi and T5's relative buckets.
//!
//! Such a bias is a vector a head. Entry `e` is added where
//! `key - query = e - (first_query + query_time - 1)`, with positions counted among the keys: the first entry
//! belongs to the last query and the first key, and there are `query_time + key_time - 1` of them.

/// The distances `key - query` of the entries.
pub fn distances(
    query_time: usize,
    key_time: usize,
    first_query: usize,
) -> impl Iterator<Item = i64> + Clone {
    let first = 1 - (first_query + query_time) as i64;
    (0..(query_time + key_time).saturating_sub(1) as i64).map(move |entry| first + entry)
}

/// ALiBi (Press, Smith and Lewis, *Train short, test long*, 2022): `-slope * |key - query|`.
///
/// # Shapes
/// `slopes` `[heads]`, `bias` `[heads, distances]`.
pub fn alibi(slopes: &[f32], distances: impl Iterator<Item = i64> + Clone, bias: &mut [f32]) {
    let entries =
        slopes.iter().flat_map(|slope| distances.clone().map(move |d| -slope * d.unsigned_abs() as f32));
    bias.iter_mut().zip(entries).for_each(|(bias, entry)| *bias = entry);
}

/// Relative positions in buckets (Raffel et al., *T5*, 2020): a learned table gives each head a bias for each
/// bucket, and `buckets` says into which one a distance falls.
///
/// # Shapes
/// `table` `[number of buckets, heads]`, `buckets` `[distances]`, `bias` `[heads, distances]`.
///
/// # Panics
/// If a bucket lies outside the table or the lengths do not fit.
pub fn relative(table: &[f32], buckets: &[u32], bias: &mut [f32]) {
    let heads = heads(buckets, bias.len());
    for (head, bias) in bias.chunks_exact_mut(buckets.len()).enumerate() {
        for (bias, bucket) in bias.iter_mut().zip(buckets) {
            *bias = table[*bucket as usize * heads + head];
        }
    }
}

/// The gradient of [`relative`]'s table, which is overwritten, from that of the bias.
///
/// # Panics
/// If a bucket lies outside the table or the lengths do not fit.
pub fn relative_backward(bias_gradient: &[f32], buckets: &[u32], table_gradient: &mut [f32]) {
    let heads = heads(buckets, bias_gradient.len());
    table_gradient.fill(0.0);
    for (head, gradient) in bias_gradient.chunks_exact(buckets.len()).enumerate() {
        for (gradient, bucket) in gradient.iter().zip(buckets) {
            table_gradient[*bucket as usize * heads + head] += gradient;
        }
    }
}

fn heads(buckets: &[u32], bias_length: usize) -> usize {
    assert!(
        !buckets.is_empty() && bias_length.is_multiple_of(buckets.len()),
        "a bias of {bias_length} over {} distances",
        buckets.len()
    );
    bias_length / buckets.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_run_from_the_last_query_and_first_key_to_the_first_query_and_last_key() {
        assert_eq!(distances(2, 3, 0).collect::<Vec<_>>(), [-1, 0, 1, 2]);
        assert_eq!(distances(2, 7, 5).collect::<Vec<_>>(), [-6, -5, -4, -3, -2, -1, 0, 1]);
    }

    #[test]
    fn alibi_falls_with_distance_on_both_sides() {
        let mut bias = [f32::NAN; 8];
        alibi(&[0.5, 0.25], distances(2, 3, 0), &mut bias);
        assert_eq!(bias, [-0.5, 0.0, -0.5, -1.0, -0.25, 0.0, -0.25, -0.5]);
    }

    #[test]
    fn relative_biases_come_from_the_table_and_their_gradients_return_to_it() {
        // Three buckets, two heads; distances -1, 0, 1, 2.
        let (table, buckets) = ([1.0, 10.0, 2.0, 20.0, 3.0, 30.0], [0, 1, 2, 2]);
        let mut bias = [f32::NAN; 8];
        relative(&table, &buckets, &mut bias);
        assert_eq!(bias, [1.0, 2.0, 3.0, 3.0, 10.0, 20.0, 30.0, 30.0]);
        let mut gradient = [f32::NAN; 6];
        relative_backward(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &buckets, &mut gradient);
        assert_eq!(gradient, [1.0, 5.0, 2.0, 6.0, 7.0, 15.0]);
    }
}
