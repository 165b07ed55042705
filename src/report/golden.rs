//! Whole pictures: their sizes, and pixels that must carry known colours.

mod course;
mod heads;

use plotters::style::RGBColor;

use super::attention::{AttentionMaps, HeadMap};
use super::attention_over_time::AttentionOverTime;
use super::color::{self, ColorMap};
use super::loss::LossCurve;
use super::picture::{Format, Picture, Raster, Style, raster, vector};
use super::prediction::{PredictedToken, Predictions};
use super::series::Point;
use super::token_row::{Outcome, tint};

impl Raster {
    fn pixel(&self, x: usize, y: usize) -> RGBColor {
        let at = (y * self.width as usize + x) * 3;
        RGBColor(self.rgb[at], self.rgb[at + 1], self.rgb[at + 2])
    }

    fn count(&self, color: RGBColor) -> usize {
        self.rgb.chunks_exact(3).filter(|pixel| *pixel == [color.0, color.1, color.2]).count()
    }

    /// The bounding box of a colour, in pixels: left, top, right, bottom.
    fn bounds(&self, color: RGBColor) -> Option<[usize; 4]> {
        let width = self.width as usize;
        let mut bounds: Option<[usize; 4]> = None;
        for (i, pixel) in self.rgb.chunks_exact(3).enumerate() {
            if pixel == [color.0, color.1, color.2] {
                let (x, y) = (i % width, i / width);
                let [left, top, right, bottom] = bounds.unwrap_or([x, y, x, y]);
                bounds = Some([left.min(x), top.min(y), right.max(x), bottom.max(y)]);
            }
        }
        bounds
    }

    /// The border is empty: nothing runs over the edge.
    fn has_clear_border(&self) -> bool {
        let (width, height) = (self.width as usize, self.height as usize);
        let clear = |x, y| self.pixel(x, y) == color::BACKGROUND;
        (0..width).all(|x| clear(x, 0) && clear(x, height - 1))
            && (0..height).all(|y| clear(0, y) && clear(width - 1, y))
    }
}

fn drawn<P: Picture>(picture: &P) -> Raster {
    let raster = raster(picture, &Style { scale: 1, ..Style::default() }).unwrap();
    assert_eq!((raster.width, raster.height), picture.size());
    assert_eq!(raster.width, 900);
    assert_eq!(raster.rgb.len(), raster.width as usize * raster.height as usize * 3);
    assert!(raster.has_clear_border(), "{} runs over its edge", P::NAME);
    raster
}

fn tokens(time: usize) -> Vec<String> {
    (0..time).map(|position| (position % 7).to_string()).collect()
}

/// A head that sees only itself.
fn identity(layer: usize, head: usize, time: usize) -> HeadMap {
    let weights = (0..time * time).map(|i| if i / time == i % time { 1.0 } else { 0.0 }).collect();
    HeadMap { layer, head, note: String::new(), weights }
}

fn maps(layers: usize, time: usize) -> AttentionMaps {
    AttentionMaps {
        run: "golden".to_string(),
        sequence: "validation sequence 3".to_string(),
        tokens: tokens(time),
        maps: (0..layers).map(|layer| identity(layer, layer % 5, time)).collect(),
    }
}

fn loss(floor: Option<f64>) -> LossCurve {
    let training = (1..=500).map(|step| Point { step, value: 0.5 + 2.0 * (-(step as f64) / 90.0).exp() });
    LossCurve {
        run: "golden".to_string(),
        training: training.collect(),
        validation: (1..=5).map(|epoch| Point { step: epoch * 100, value: 0.6 }).collect(),
        learning_rate: (1..=500).map(|step| Point { step, value: 1e-3 }).collect(),
        epoch_ends: (1..=5).map(|epoch| epoch * 100).collect(),
        floor,
    }
}

#[test]
fn an_identity_map_is_bright_on_the_diagonal_dark_below_and_empty_above() {
    for map in [ColorMap::Viridis, ColorMap::Magma, ColorMap::Rainbow] {
        let style = Style { scale: 1, color_map: map, ..Style::default() };
        let time = 7;
        let raster = raster(&maps(1, time), &style).unwrap();
        // The dark cells reach from the left edge of the second row to the bottom; cells are 64 wide.
        let dark = raster.bounds(map.color(0.0)).unwrap();
        let [left, _, _, bottom] = dark;
        let side = (64 * time) as f64;
        let top = bottom as f64 - side;
        let cell = |query: usize, key: usize| {
            // A quarter into the cell, beside the weight that is written in its middle.
            let along = |i: usize| (i as f64 + 0.2) * side / time as f64;
            raster.pixel((left as f64 + along(key)) as usize, (top + along(query)) as usize)
        };
        for query in 0..time {
            for key in 0..time {
                let expected = match key.cmp(&query) {
                    std::cmp::Ordering::Less => map.color(0.0),
                    std::cmp::Ordering::Equal => map.color(1.0),
                    std::cmp::Ordering::Greater => color::BACKGROUND,
                };
                assert_eq!(cell(query, key), expected, "{map:?}: query {query}, key {key}");
            }
        }
    }
}

#[test]
fn every_number_of_layers_and_every_length_is_drawn_within_its_picture() {
    for layers in [1, 2, 3, 4, 5, 12] {
        for time in [1, 2, 11, 64, 211] {
            let maps = maps(layers, time);
            for raster in [drawn(&maps), drawn(&AttentionOverTime(&maps))] {
                assert!(raster.count(color::INK) > 100, "{layers} layers, {time} tokens");
            }
        }
    }
    drawn(&maps(12, 1_024));
}

#[test]
fn long_and_foreign_tokens_stay_within_the_picture() {
    let odd =
        ["\u{202e}abc", "   ", "\n\n", "internationalisation", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝔱𝔢𝔵𝔱", "你好", "<script>", "\0", ""];
    let mut maps = maps(2, 27);
    maps.tokens = (0..27).map(|i| odd[i % odd.len()].to_string()).collect();
    maps.run = "a run with a name that is far too long for one line ".repeat(5);
    drawn(&maps);
    drawn(&AttentionOverTime(&maps));
    let steps = (0..200).map(|i| PredictedToken {
        truth: odd[i % odd.len()].to_string(),
        predicted: odd[i * 5 % odd.len()].to_string(),
        determined: i % 3 > 0,
    });
    drawn(&Predictions { run: maps.run, sequence: maps.sequence, steps: steps.collect() });
}

#[test]
fn the_floor_is_a_dashed_line_across_the_chart_below_the_losses() {
    let raster = drawn(&loss(Some(0.5)));
    let [left, _, right, floor] = raster.bounds(color::GREEN).unwrap();
    assert!(right - left > 680, "from {left} to {right}");
    let row: Vec<bool> = (left..right).map(|x| raster.pixel(x, floor) == color::GREEN).collect();
    let dashes = row.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert!(dashes > 50, "{dashes} dashes");
    let [_, _, _, validation] = raster.bounds(color::VERMILION).unwrap();
    assert!(validation < floor, "validation loss at row {validation}, floor at row {floor}");
    assert_eq!(drawn(&loss(None)).count(color::GREEN), 0);
}

#[test]
fn a_spike_at_the_start_does_not_squash_the_curve() {
    // How far the curve falls from a little after the start, in pixels.
    let height = |curve: &LossCurve| {
        let raster = drawn(curve);
        let rows: Vec<usize> =
            (110..430).filter(|&y| (120..400).any(|x| raster.pixel(x, y) == color::BLUE)).collect();
        rows[rows.len() - 1] - rows[0]
    };
    let usual = loss(Some(0.5));
    let mut spiked = usual.clone();
    spiked.training[0].value = 500.0;
    spiked.training[1].value = f64::INFINITY;
    assert!(height(&spiked) * 2 > height(&usual), "{} of {}", height(&spiked), height(&usual));
}

#[test]
fn runs_without_points_are_drawn_too() {
    let empty = LossCurve::default();
    assert!(drawn(&empty).count(color::MUTED) > 100);
    let one = LossCurve { training: vec![Point { step: 1, value: 2.0 }], ..empty.clone() };
    assert!(drawn(&one).count(color::BLUE) > 0);
    let lost = LossCurve { training: vec![Point { step: 1, value: f64::NAN }], ..empty };
    drawn(&lost);
}

fn predictions(truth: &[&str], predicted: &[&str], determined: usize) -> Predictions {
    let steps = truth.iter().zip(predicted).enumerate().map(|(i, (truth, predicted))| PredictedToken {
        truth: truth.to_string(),
        predicted: predicted.to_string(),
        determined: i >= determined,
    });
    Predictions {
        run: "golden".to_string(),
        sequence: "validation sequence 0".to_string(),
        steps: steps.collect(),
    }
}

#[test]
fn misses_are_marked_and_what_cannot_be_known_is_no_miss() {
    // Numbers are drawn as a chart, text as cells.
    let numbers = (["3", "5", "7", "2"], ["1", "5", "7", "2"], color::VERMILION);
    let text = (["a", "b", " c", "d"], ["x", "b", " c", "d"], tint(Outcome::Miss));
    for (right, wrong, mark) in [numbers, text] {
        let perfect = drawn(&predictions(&right, &right, 0));
        assert_eq!((perfect.count(mark), perfect.count(color::SHADE)), (0, 0));
        assert!(drawn(&predictions(&right, &wrong, 0)).count(mark) > 50);
        let unknowable = drawn(&predictions(&right, &wrong, 1));
        assert_eq!(unknowable.count(mark), 0);
        assert!(unknowable.count(color::SHADE) > 200);
    }
}

#[test]
fn an_svg_says_in_text_what_the_picture_shows() {
    let mut maps = maps(2, 11);
    maps.tokens[3] = "<b>&\"".to_string();
    maps.tokens[4] = "a\u{1b}b".to_string();
    let style = Style { format: Format::Svg, ..Style::default() };
    let svg = vector(&maps, &style).unwrap();
    for text in [
        "golden: attention",
        "layer 0, head 0",
        "layer 1, head 1",
        "attention weight",
        "&lt;b&gt;&amp;&quot;",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!(svg.contains("data:image/png;base64,") && !svg.contains("<b>"));
    assert!(!svg.contains(|c: char| c.is_control() && c != '\n'));
    assert!(svg.starts_with("<svg width=\"900\""));
    let svg = vector(&loss(Some(0.5)), &style).unwrap();
    assert!(svg.contains("floor 0.5000 nats") && svg.contains("learning rate"));
}

#[test]
fn pictures_are_written_as_files_of_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let curve = loss(Some(0.5));
    let style = Style { scale: 3, ..Style::default() };
    let path = curve.save(folder.path(), &style).unwrap();
    assert_eq!(path, folder.path().join("loss.png"));
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(bytes[16..24], [0, 0, 0x0a, 0x8c, 0, 0, 0x05, 0xa0], "2700 by 1440 pixels");
    let path = curve.save(folder.path(), &Style { format: Format::Svg, ..style }).unwrap();
    assert!(std::fs::read_to_string(path).unwrap().trim_end().ends_with("</svg>"));
}

#[test]
fn what_cannot_be_drawn_is_refused_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut ill = maps(1, 5);
    ill.maps[0].weights.pop();
    let message = ill.save(folder.path(), &Style::default()).unwrap_err().to_string();
    assert_eq!(message, "layer 0, head 0: 24 weights do not fit 5 tokens, which need [5, 5]");
    assert!(AttentionOverTime(&maps(0, 5)).save(folder.path(), &Style::default()).is_err());
    let missing = folder.path().join("missing");
    let message = loss(None).save(&missing, &Style::default()).unwrap_err().to_string();
    assert!(message.starts_with("cannot write `") && message.contains("loss.png"), "{message}");
    let message = loss(None).save(folder.path(), &Style { scale: 0, ..Style::default() }).unwrap_err();
    assert_eq!(message.to_string(), "`scale` = 0 must lie between 1 and 4");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
