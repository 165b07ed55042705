//! The comparison of all samples with their reference images in `tests/golden`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use image::RgbImage;

use super::difference::{VISIBLE, compare, marked};
use super::hard::hard_samples;
use super::narrow::logical;
use super::samples::{NamedPicture, samples};
use crate::draw::{Picture, Style, WIDTH, raster};

const ACCEPT: &str = "ACCEPT_PICTURES=1 cargo test --release -p causal-attention-report golden";

/// Returns the folder of the reference images.
fn references() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The samples whose narrow layout differs most from the wide one. The others would only take space.
const NARROW: [&str; 11] = [
    "attention-decoder",
    "circuit-run",
    "effects-study",
    "formation-run",
    "heads-compared",
    "lengths-run",
    "logit_lens-run",
    "loss-run",
    "losses-compared",
    "prediction-decoder",
    "rate_finder-run",
];
/// The pictures of an encoder-decoder that look like those of a decoder.
const SIMILAR: [&str; 3] = ["attention_over_time-translator", "heads-translator", "head_scores-translator"];
/// The maximum size of all references together, in bytes.
const MAX_SIZE: u64 = 3_000_000;

/// Returns the samples by the name of their reference image.
fn named_samples() -> BTreeMap<String, Picture> {
    let named = |(name, picture): NamedPicture| (format!("{}-{name}", picture.name), picture);
    let wide = samples(WIDTH).into_iter().chain(hard_samples()).map(named);
    let wide = wide.filter(|(name, _)| !SIMILAR.contains(&name.as_str()));
    let narrow = samples(logical(Style::MIN_WIDTH)).into_iter().map(named);
    let narrow = narrow.filter(|(name, _)| NARROW.contains(&name.as_str()));
    let narrow = narrow.map(|(name, picture)| (name + "-narrow", picture));
    let all: Vec<_> = wide.chain(narrow).map(|(name, picture)| (name + ".png", picture)).collect();
    let count = all.len();
    let samples = BTreeMap::from_iter(all);
    assert_eq!(samples.len(), count, "each sample has its own name");
    samples
}

/// Compares an image with its reference. Returns a report of a visible difference, and writes the drawn image into `output`,
/// and next to it an image that marks the differences.
fn report(name: &str, drawn: &RgbImage, references: &Path, output: &Path) -> Option<String> {
    let write = |suffix: &str, image: &RgbImage| {
        let path = output.join(name.replace(".png", suffix));
        std::fs::create_dir_all(output).unwrap();
        image.save(&path).unwrap();
        path.display().to_string()
    };
    let path = references.join(name);
    let Ok(reference) = image::open(&path) else {
        let drawn = write(".drawn.png", drawn);
        return Some(format!("{}: missing or unreadable; drawn: {drawn}", path.display()));
    };
    let reference = reference.to_rgb8();
    let (found, [old, new]) = (compare(&reference, drawn), [&reference, drawn].map(RgbImage::dimensions));
    if found.score <= VISIBLE && old == new {
        return None;
    }
    let (x, y) = found.corner;
    let size =
        if old == new { String::new() } else { format!(" and its size is {new:?} instead of {old:?},") };
    let (marked, drawn) = (write(".difference.png", &marked(&reference, drawn)), write(".drawn.png", drawn));
    Some(format!(
        "{}: differs by {:.3} (visible from {VISIBLE}) at ({x}, {y}),{size} drawn: {drawn}, difference: {marked}",
        path.display(),
        found.score
    ))
}

/// Returns the references that no sample has.
fn unused(samples: &BTreeMap<String, Picture>, references: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(references).into_iter().flatten();
    let files = files.map(|file| file.unwrap()).filter(|file| {
        let name = file.file_name();
        !name.to_str().is_some_and(|name| samples.contains_key(name))
    });
    files.map(|file| file.path()).collect()
}

/// Returns `target/release/golden`, or the folder of another profile.
fn output() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("golden")
}

#[test]
fn pictures_look_like_their_references() {
    if Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml.orig").exists() {
        skipped();
        return;
    }
    let (references, output, samples) = (references(), output(), named_samples());
    let is_accepted = std::env::var_os("ACCEPT_PICTURES").is_some_and(|value| value == "1");
    // Images of an earlier failure would mislead.
    if output.exists() {
        std::fs::remove_dir_all(&output).unwrap();
    }
    let (mut problems, mut size) = (Vec::new(), 0);
    for (name, picture) in &samples {
        let drawn = raster(picture, 1).unwrap();
        match report(name, &drawn, &references, &output) {
            Some(_) if is_accepted => std::fs::write(references.join(name), packed(&drawn)).unwrap(),
            problem => problems.extend(problem),
        }
        size += std::fs::metadata(references.join(name)).map_or(0, |file| file.len());
    }
    for path in unused(&samples, &references) {
        match is_accepted {
            true => std::fs::remove_file(path).unwrap(),
            false => problems.push(format!("{}: no sample has this name", path.display())),
        }
    }
    assert!(
        problems.is_empty(),
        "pictures and references differ. Look at the images, then accept them with\n  {ACCEPT}\n{}",
        problems.join("\n")
    );
    assert!(size <= MAX_SIZE, "the references have {size} bytes; make the samples smaller or fewer");
}

/// Reports that the comparison is left out: a published package contains no references.
fn skipped() {
    let notice = "skipped: the package contains no reference images; the repository does\n";
    std::io::stderr().write_all(notice.as_bytes()).expect("the notice of a test");
}

/// Returns the names of the pictures that the files in a folder create, without the folders of shapes and of tests.
fn created(folder: &Path) -> Vec<String> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names = |path: PathBuf| {
        if path.is_dir() {
            return if path.ends_with("draw") { Vec::new() } else { created(&path) };
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let calls = text.split("Picture::new(").skip(1);
        let literals = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
        literals.map(str::to_string).collect()
    };
    paths.filter(|path| !path.ends_with("golden") && !path.ends_with("golden.rs")).flat_map(names).collect()
}

#[test]
fn every_kind_of_picture_has_a_sample() {
    let (samples, names) = (named_samples(), created(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")));
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(
            samples.values().any(|picture| picture.name == name),
            "`{name}` needs one in golden/samples.rs"
        );
    }
}

/// Encodes an image as a small PNG.
fn packed(image: &RgbImage) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.width(), image.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Best);
    // Flat areas and repeated glyphs compress better without a filter.
    encoder.set_filter(png::FilterType::NoFilter);
    encoder.write_header().unwrap().write_image_data(image.as_raw()).unwrap();
    bytes
}

#[test]
fn reports_name_the_images_to_look_at() {
    let folder = tempfile::tempdir().unwrap();
    let (references, output) = (folder.path().join("references"), folder.path().join("output"));
    std::fs::create_dir(&references).unwrap();
    let mut samples = named_samples();
    let (name, mut picture) = samples.remove_entry("loss-run.png").unwrap();
    let drawn = raster(&picture, 1).unwrap();
    let missing = report(&name, &drawn, &references, &output).unwrap();
    assert!(missing.contains("missing") && missing.contains("loss-run.drawn.png"), "{missing}");
    std::fs::write(references.join(&name), packed(&drawn)).unwrap();
    assert_eq!(report(&name, &drawn, &references, &output), None);
    assert_eq!(unused(&samples, &references), [references.join(&name)]);
    picture.move_text("300", (3.0, 0.0));
    let different = report(&name, &raster(&picture, 1).unwrap(), &references, &output).unwrap();
    for image in ["loss-run.drawn.png", "loss-run.difference.png"] {
        assert!(different.contains(image) && output.join(image).exists(), "{different}");
    }
    picture.remove_title();
    let smaller = report(&name, &raster(&picture, 1).unwrap(), &references, &output).unwrap();
    assert!(smaller.contains("its size is"), "{smaller}");
}
