//! Tests of the section `[data]`.

use super::*;

#[test]
fn every_key_has_default_and_round_trips() {
    let config = DataConfig::default();
    let written = toml::to_string(&config).unwrap();
    assert!(written.contains("vocab = \"auto\""), "{written}");
    assert_eq!(toml::from_str::<DataConfig>(&written).unwrap(), config);
    assert_eq!(toml::from_str::<DataConfig>("").unwrap(), config);
    let config = DataConfig { vocab: Count::Of(7), ..config };
    assert_eq!(toml::from_str::<DataConfig>("vocab = 7").unwrap(), config);
}

#[test]
fn type_errors_say_what_is_expected() {
    for wrong in ["period = [1]", "period = [1, 2, 3]", "period = 4", "period = \"long\""] {
        let error = toml::from_str::<DataConfig>(wrong).unwrap_err().to_string();
        assert!(error.contains("as [8, 16], or \"auto\""), "{error}");
    }
    let config = DataConfig { period: Periods::Of([3, 5]), ..DataConfig::default() };
    assert_eq!(toml::from_str::<DataConfig>("period = [3, 5]").unwrap(), config);
    for wrong in ["vocab = \"many\"", "vocab = -3", "vocab = 1.5"] {
        let error = toml::from_str::<DataConfig>(wrong).unwrap_err().to_string();
        assert!(error.contains("expected an integer or \"auto\""), "{error}");
    }
}

#[test]
fn path_decides_the_source() {
    let config = |path: &str| DataConfig { path: path.into(), ..DataConfig::default() };
    let sources = ["", "2024", "a.txt", "b.CSV"].map(|path| config(path).source());
    assert_eq!(sources, [Source::Sequences, Source::Text, Source::Text, Source::Table]);
    assert_eq!(["a.npy", "train.bin"].map(|path| config(path).source()), [Source::Array; 2]);
    let packed = ["a.txt.zst", "b.tsv.gz", "c.jsonl.GZ", "d.gz"].map(|path| config(path).source());
    assert_eq!(packed, [Source::Text, Source::Table, Source::Table, Source::Text]);
    assert_eq!(
        (DataConfig::extension_of(Path::new("b.TSV.gz")).as_str(), config("c.jsonl.zst").is_json()),
        ("tsv", true)
    );
    let drawn = DataConfig { source: Some(Source::Sequences), ..config("a.txt") };
    let error = drawn.check().unwrap_err().to_string();
    assert!(error.contains("`data.path` = \"a.txt\" names one; remove"), "{error}");
    let config = DataConfig { source: Some(Source::Text), ..config("b.csv") };
    assert_eq!(config.source(), Source::Text);
    assert!(DataConfig { tokens: Tokens::File("".into()), ..config }.check().is_err());
}

#[test]
fn training_split_is_exact_despite_rounding() {
    let parts = |valid_fraction| {
        let config = DataConfig { valid_fraction, ..DataConfig::default() };
        [10, 9, 1000, 1_115_394].map(|all| config.train_part(all))
    };
    assert_eq!(parts(0.8), [2, 1, 200, 223_078]);
    assert_eq!(parts(0.9), [1, 0, 100, 111_539]);
    assert_eq!(parts(0.7), [3, 2, 300, 334_618]);
    assert_eq!(parts(0.1), [9, 8, 900, 1_003_854]);
}

#[test]
fn nan_fraction_is_rejected_even_when_unused() {
    let config = DataConfig { valid_fraction: f64::NAN, ..DataConfig::default() };
    let error = config.check().unwrap_err().to_string();
    assert_eq!(error, "`data.valid_fraction` = NaN must be in (0, 1)");
}
