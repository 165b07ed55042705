//! The keys visible to the queries of a sequence.

use std::ops::Range;

use super::super::Attention;
use crate::vector::LANES;

/// The keys visible to the queries of a sequence, with one query per lane.
pub(super) struct VisibleKeys {
    /// The last key visible to each query; `negative_first` is the negated first visible key.
    pub(super) last: [f32; LANES],
    pub(super) negative_first: [f32; LANES],
    /// Two flags: the last key is hidden from some query, and the first key is hidden from some query.
    pub(super) is_cut: [bool; 2],
    /// For each key, the range from the first to the last query that can see it.
    pub(super) queries: [Range<usize>; LANES],
}

impl VisibleKeys {
    pub(super) fn new(attention: &Attention, sequence: usize) -> Self {
        let Attention { query_time, key_time, .. } = *attention;
        let sees_all = attention.visible.is_empty();
        let mut visible = Self {
            last: [0.0; LANES],
            negative_first: [0.0; LANES],
            is_cut: [false; 2],
            queries: std::array::from_fn(|key| 0..if sees_all && key < key_time { query_time } else { 0 }),
        };
        if sees_all {
            return visible;
        }
        for query in 0..query_time {
            let keys = attention.keys(sequence, query);
            (visible.last[query], visible.negative_first[query]) =
                (keys.end as f32 - 1.0, -(keys.start as f32));
            visible.is_cut = [visible.is_cut[0] || keys.end < key_time, visible.is_cut[1] || keys.start > 0];
            for queries in &mut visible.queries[keys] {
                *queries = if queries.end == 0 { query } else { queries.start }..query + 1;
            }
        }
        visible
    }
}
