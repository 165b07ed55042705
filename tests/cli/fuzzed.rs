//! The inputs that the fuzzers of `fuzz/` kept: readers accept or refuse each without a panic.

#[path = "../../fuzz/formats.rs"]
mod formats;

use std::fs;
use std::panic;
use std::path::Path;

#[test]
fn readers_accept_or_refuse_the_inputs_of_fuzzers() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (format, read) in formats::ALL {
        let files = fs::read_dir(corpus.join(format)).unwrap().map(|entry| entry.unwrap().path());
        let files = files.collect::<Vec<_>>();
        assert!(files.len() > 10, "{format}: {} inputs", files.len());
        for file in files {
            let bytes = fs::read(&file).unwrap();
            assert!(panic::catch_unwind(|| read(&bytes)).is_ok(), "{}", file.display());
        }
    }
}
