//! Test helpers for this crate and its dependents: random numbers, and comparisons of thread counts.

/// Returns numbers between -1 and 1 that depend only on the seed (SplitMix64).
pub fn random(seed: u64, length: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Runs `compute` on 1, 2 and 3 threads, of rayon and of a team, and asserts that the results have the same bits.
#[track_caller]
pub fn assert_same_on_any_number_of_threads(compute: impl Fn() -> Vec<Vec<f32>> + Sync + Send) {
    let bits = |results: Vec<Vec<f32>>| -> Vec<Vec<u32>> {
        results.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
    };
    let by_rayon = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
        bits(pool.install(&compute))
    };
    let expected = by_rayon(1);
    for threads in [2, 3] {
        assert!(expected == by_rayon(threads), "results differ between 1 and {threads} threads");
        let by_team = bits(crate::team::with_threads(threads, &compute));
        assert!(expected == by_team, "results differ between 1 thread and a team of {threads}");
    }
}
