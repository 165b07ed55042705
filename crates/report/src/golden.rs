//! Golden tests of complete pictures: a reference image of each kind of picture, and properties of pictures such as
//! their sizes, clear borders and the positions of marks.

mod curves;
mod difference;
mod hard;
mod heads;
mod loss;
mod narrow;
mod predictions;
mod references;
mod samples;

use std::path::Path;

use image::RgbImage;
use loss::loss;
use plotters::style::RGBColor;

use crate::draw::{Picture, PictureFormat, Rect, Style, WIDTH, WeightColors, color, raster};
use crate::page::{Heads, Page};
use crate::reading::{AttentionMaps, Reading, Target, TargetRole, TokenProbability};
use crate::{attention, attention_over_time, heads as all_heads};

/// Access to the pixels of a drawn picture.
trait Pixels {
    fn pixel(&self, x: usize, y: usize) -> RGBColor;
    fn count(&self, color: RGBColor) -> usize;
    /// Returns the bounding box of a colour, in pixels: left, top, right, bottom.
    fn bounds(&self, color: RGBColor) -> Option<[usize; 4]>;
    /// Returns true if the outermost pixels are empty, so that no shape is cut at the edge.
    fn has_clear_border(&self) -> bool;
}

impl Pixels for RgbImage {
    fn pixel(&self, x: usize, y: usize) -> RGBColor {
        let [red, green, blue] = self.get_pixel(x as u32, y as u32).0;
        RGBColor(red, green, blue)
    }

    fn count(&self, color: RGBColor) -> usize {
        self.pixels().filter(|pixel| pixel.0 == [color.0, color.1, color.2]).count()
    }

    fn bounds(&self, color: RGBColor) -> Option<[usize; 4]> {
        let mut bounds: Option<[usize; 4]> = None;
        for (x, y, pixel) in self.enumerate_pixels() {
            if pixel.0 == [color.0, color.1, color.2] {
                let (x, y) = (x as usize, y as usize);
                let [left, top, right, bottom] = bounds.unwrap_or([x, y, x, y]);
                bounds = Some([left.min(x), top.min(y), right.max(x), bottom.max(y)]);
            }
        }
        bounds
    }

    fn has_clear_border(&self) -> bool {
        let (width, height) = (self.width() as usize, self.height() as usize);
        let clear = |x, y| self.pixel(x, y) == color::BACKGROUND;
        (0..width).all(|x| clear(x, 0) && clear(x, height - 1))
            && (0..height).all(|y| clear(0, y) && clear(width - 1, y))
    }
}

fn drawn(picture: &Picture) -> RgbImage {
    let raster = raster(picture, 1).unwrap();
    assert_eq!(raster.dimensions(), picture.size());
    assert_eq!(raster.width(), 900);
    assert!(raster.has_clear_border(), "{} is cut at its edge", picture.name);
    raster
}

fn vector(picture: &Picture) -> String {
    picture.to_svg().unwrap()
}

fn tokens(time: usize) -> Vec<String> {
    (0..time).map(|position| (position % 7).to_string()).collect()
}

/// Returns the map of a head that attends only to its own position.
fn identity(time: usize) -> Vec<f32> {
    (0..time * time).map(|i| if i / time == i % time { 1.0 } else { 0.0 }).collect()
}

/// Returns the reading of a sequence of `time` tokens by a decoder with these maps, `[layer][head]`.
fn reading(time: usize, attention: Vec<Vec<Vec<f32>>>) -> Reading {
    Reading {
        sequence: "validation sequence 3".to_string(),
        source: None,
        inputs: tokens(time),
        targets: vec![None; time],
        maps: AttentionMaps { attention, ..AttentionMaps::default() },
        most_likely: vec![Vec::new(); time],
    }
}

/// Draws the two pictures of one head per layer: the maps and the curves.
fn maps(reading: &Reading) -> [Picture; 2] {
    let layers = reading.layers(&Default::default(), &[]);
    [
        attention::picture("golden", reading, &layers, (WeightColors::Linear, WIDTH)),
        attention_over_time::picture("golden", reading, &layers, WIDTH),
    ]
}

#[test]
fn identity_map_is_bright_only_on_the_diagonal() {
    let time = 7;
    let raster = drawn(&maps(&reading(time, vec![vec![identity(time)]]))[0]);
    // The dark cells span from the left edge of the second row to the bottom; cells are 64 wide.
    let [left, _, _, bottom] = raster.bounds(color::color(0.0)).unwrap();
    let side = (64 * time) as f64;
    let top = bottom as f64 - side;
    let cell = |query: usize, key: usize| {
        // A fifth into the cell, next to the weight written at its centre.
        let along = |i: usize| (i as f64 + 0.2) * side / time as f64;
        raster.pixel((left as f64 + along(key)) as usize, (top + along(query)) as usize)
    };
    for query in 0..time {
        for key in 0..time {
            let expected = match key.cmp(&query) {
                std::cmp::Ordering::Less => color::color(0.0),
                std::cmp::Ordering::Equal => color::color(1.0),
                std::cmp::Ordering::Greater => color::BACKGROUND,
            };
            assert_eq!(cell(query, key), expected, "query {query}, key {key}");
        }
    }
}

#[test]
fn maps_fit_their_picture_at_every_size() {
    for layers in [1, 2, 3, 4, 5, 12] {
        for time in [1, 2, 11, 64, 211] {
            for picture in maps(&reading(time, vec![vec![identity(time)]; layers])) {
                drawn(&picture);
            }
        }
    }
    drawn(&maps(&reading(1_024, vec![vec![identity(1_024)]; 12]))[0]);
}

#[test]
fn encoder_decoder_maps_cover_all_attention_kinds() {
    for (queries, keys) in [(5, 6), (1, 40), (60, 3), (300, 11)] {
        let mut reading = reading(queries, vec![vec![identity(queries); 2]; 2]);
        reading.source = Some((0..keys).map(|i| format!("s{i}")).collect());
        reading.maps.cross = vec![vec![vec![1.0 / keys as f32; queries * keys]; 2]; 2];
        reading.maps.encoder = vec![vec![identity(keys); 2]; 2];
        let [maps, curves] = maps(&reading);
        let all = all_heads::picture(
            "golden",
            &reading,
            &reading.layers(&Default::default(), &[]),
            (WeightColors::Linear, WIDTH),
        );
        for picture in [&maps, &curves, &all] {
            drawn(picture);
        }
        for kind in
            ["decoder self-attention, layer 1", "cross-attention, layer 0", "encoder self-attention, layer"]
        {
            assert!(vector(&maps).contains(kind) && vector(&curves).contains(kind), "{kind}");
        }
        assert!(vector(&maps).contains(">\ns0\n<") && vector(&all).contains("cross-attention"));
    }
}

#[test]
fn long_and_foreign_tokens_stay_within_the_picture() {
    let odd =
        ["\u{202e}abc", "   ", "\n\n", "internationalisation", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝔱𝔢𝔵𝔱", "你好", "<script>", "\0", ""];
    let mut reading = reading(200, vec![vec![identity(200)]; 2]);
    reading.inputs = (0..200).map(|i| odd[i % odd.len()].to_string()).collect();
    reading.targets = (0..200).map(|i| Some(target(odd[i % odd.len()], i % 3 > 0))).collect();
    reading.most_likely = (0..200).map(|i| vec![likely(odd[i * 5 % odd.len()])]).collect();
    let run = "a run with a name that is far too long for one line ".repeat(5);
    for picture in Page::new(run, (vec![reading], 0), Heads::default()).pictures(WIDTH) {
        drawn(&picture);
    }
}

#[test]
fn long_notes_are_never_truncated() {
    let mut reading = reading(900, vec![vec![identity(900)]]);
    let short = drawn(&maps(&reading)[0]).height();
    reading.sequence = "validation sequence 3 (truncated), with the weights of step 100,000".to_string();
    let [picture, _] = maps(&reading);
    let svg = vector(&picture);
    let words = svg.lines().filter(|line| !line.starts_with('<')).collect::<Vec<_>>().join(" ");
    assert!(words.contains("on its keys, averaged over its queries") && !words.contains('…'), "{words}");
    assert!(drawn(&picture).height() >= short, "further lines add height");
}

fn likely(token: &str) -> TokenProbability {
    TokenProbability { id: id(token), token: token.to_string(), probability: 0.25 }
}

/// Returns an id that is the same for the same text.
fn id(text: &str) -> u32 {
    text.bytes().fold(0, |id, byte| (id * 31 + u32::from(byte)) % 1_000_003)
}

fn target(text: &str, determined: bool) -> Target {
    let role = if determined { TargetRole::Determined } else { TargetRole::Undetermined };
    Target { id: id(text), text: text.to_string(), probability: 0.5, role }
}

#[test]
fn svg_contains_the_picture_text_escaped() {
    let mut reading = reading(11, vec![vec![identity(11)]; 2]);
    reading.inputs[3] = "<b>&\"".to_string();
    reading.inputs[4] = "a\u{1b}b".to_string();
    let svg = vector(&maps(&reading)[0]);
    for text in [
        "golden: attention",
        "layer 0, head 0",
        "layer 1, head 0",
        "attention weight",
        "&lt;b&gt;&amp;&quot;",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("data:image/png;base64,") && !svg.contains("<b>"));
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n'));
    assert!(svg.starts_with("<svg width=\"900\""));
    let svg = vector(&loss(Some(0.5)).picture(WIDTH));
    assert!(svg.contains("floor 0.5000 nats") && svg.contains("learning rate"));
    assert!(svg.contains("training, smoothed over"));
}

#[test]
fn pictures_are_written_as_files_of_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let curve = loss(Some(0.5)).picture(WIDTH);
    let style = Style { scale: 3, ..Style::default() };
    let path = curve.save(folder.path(), &style).unwrap();
    assert_eq!(path, folder.path().join("loss.png"));
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes[16..24], [0, 0, 0x0a, 0x8c, 0, 0, 0x05, 0xa0], "2700 by 1440 pixels");
    let path = curve.save(folder.path(), &Style { format: PictureFormat::Svg, ..style }).unwrap();
    assert!(std::fs::read_to_string(path).unwrap().trim_end().ends_with("</svg>"));
}

#[test]
fn titles_can_be_removed() {
    let mut picture = loss(Some(0.5)).picture(WIDTH);
    let (size, title) = (picture.size(), "golden: loss by step");
    assert!(vector(&picture).contains(title));
    picture.remove_title();
    let svg = vector(&picture);
    assert!(!svg.contains(title) && svg.contains("floor 0.5000 nats"), "the legend stays");
    assert!(picture.size().1 < size.1 - 40, "{:?} of {size:?}", picture.size());
    drawn(&picture);
}

#[test]
fn pdf_has_the_given_width_and_text_to_search() {
    let mut picture = Picture::new("text", (WIDTH, 100.0), "Loss \u{2264} 1 \u{378}", "");
    picture.cells(Rect { left: 0.0, top: 64.0, width: 90.0, height: 30.0 }, [3, 1], |across, _| {
        color::color(across)
    });
    let style = Style { format: PictureFormat::Pdf, width: 225, ..Style::default() };
    let bytes = picture.encode(&style).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.starts_with("%PDF-1.7") && text.contains("/MediaBox [0 0 225 25]"), "{text}");
    assert!(
        text.contains("/BaseFont /ABCDEG+DejaVuSans-Bold")
            && text.contains("/Width 3")
            && !text.contains("/Type3")
    );
    // The code points of the title, also of the character without a font.
    for character in "Los\u{2264}1\u{378}".chars() {
        assert!(text.contains(&format!("<{:04X}>", character as u32)), "{character}");
    }
    assert_eq!(bytes, picture.encode(&style).unwrap(), "the same bytes each time");
}

#[test]
fn failed_saves_are_reported_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let picture = loss(None).picture(WIDTH);
    let save = |folder: &Path, style: Style| picture.save(folder, &style).unwrap_err().to_string();
    let message = save(&folder.path().join("missing"), Style::default());
    assert!(message.starts_with("cannot write `") && message.contains("loss.png"), "{message}");
    let message = save(folder.path(), Style { scale: 0, ..Style::default() });
    assert_eq!(message, "`scale` = 0 must be in [1, 4]");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
