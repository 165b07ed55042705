//! Tests of the complete page.

use super::*;
use crate::reading::{AttentionKind, AttentionMaps, Target, TargetRole, TokenProbability};
use crate::series::Point;

/// Returns an attention map whose weights decrease with the distance; they are uniform if `sharpness` is 0.
fn map(sharpness: f64, time: usize) -> Vec<f32> {
    let row = |query: usize| {
        let weight = move |key: usize| (-sharpness * (query - key) as f64).exp();
        let sum: f64 = (0..=query).map(weight).sum();
        (0..time).map(move |key| if key <= query { (weight(key) / sum) as f32 } else { 0.0 })
    };
    (0..time).flat_map(row).collect()
}

fn maps(layers: usize, heads: usize, time: usize) -> Vec<Vec<Vec<f32>>> {
    let head = |layer: usize, head: usize| map((layer * heads + head) as f64 / 3.0, time);
    (0..layers).map(|layer| (0..heads).map(|index| head(layer, index)).collect()).collect()
}

/// The kind of score in these tests.
pub(super) const SCORE: ScoreKind = ScoreKind {
    key: "induction",
    name: "induction",
    unit: "weight",
    meaning: "weight on the token after an earlier occurrence",
    digits: 2,
    is_weight: true,
};

/// The sequences, head scores and score history of a page.
#[derive(Clone)]
pub(super) struct PageData {
    pub readings: Vec<Reading>,
    pub heads: Vec<Vec<HeadScores>>,
    pub history: Vec<ScoredStep>,
}

impl PageData {
    /// Creates the data of `samples` sequences of `time` tokens.
    pub fn new(layers: usize, heads: usize, time: usize, samples: usize) -> Self {
        let attention = maps(layers, heads, time);
        let reading = |index: usize| Reading {
            sequence: format!("validation sequence {index}"),
            source: None,
            inputs: (0..time).map(|i| ((i * 5 + index) % 7).to_string()).collect(),
            targets: (0..time)
                .map(|i| {
                    let role = if i > 2 { TargetRole::Determined } else { TargetRole::Undetermined };
                    let id = (i * 5 + 5 + index) % 7;
                    Some(Target { id: id as u32, text: id.to_string(), probability: 0.123, role })
                })
                .collect(),
            most_likely: (0..time)
                .map(|i| {
                    vec![
                        TokenProbability { id: i as u32 % 7, token: (i % 7).to_string(), probability: 0.9 };
                        5
                    ]
                })
                .collect(),
            maps: AttentionMaps { attention: attention.clone(), ..AttentionMaps::default() },
        };
        let induction = HeadScores::new([(SCORE, Some(0.25))]);
        let scores = vec![vec![induction; heads]; layers];
        Self {
            readings: (0..samples).map(reading).collect(),
            history: [10, 100].map(|step| ScoredStep { step, heads: scores.clone() }).to_vec(),
            heads: scores,
        }
    }

    pub fn page(&self) -> Page {
        Page {
            run: "golden".to_string(),
            summary: vec![("loss".to_string(), "0.5 nats".to_string())],
            config: "[run]\nname = \"golden\"\n".to_string(),
            loss: LossCurve {
                training: (1..=100).map(|step| Point { step, value: 1.0 / step as f64 }).collect(),
                ..LossCurve::default()
            },
            readings: self.readings.clone(),
            sample: 0,
            heads: Heads {
                measured_on: "3 sequences".to_string(),
                scores: self.heads.clone(),
                chance: vec![HeadScores::new([(SCORE, Some(0.05))]); self.heads.len()],
                shown: [(AttentionKind::Decoder, vec![0; self.heads.len()])].into(),
                kinds: vec![SCORE],
                notes: Vec::new(),
                colors: WeightColors::Linear,
            },
            history: self.history.clone(),
            circuit: None,
            film: Vec::new(),
            chapters: Vec::new(),
            model: None,
        }
    }
}

#[test]
fn large_pages_stay_below_three_megabytes() {
    for (layers, heads, time) in [(2, 4, 64), (2, 4, 512), (12, 12, 128)] {
        let mut input = PageData::new(layers, heads, time, 8);
        input.history = vec![input.history[0].clone(); 500];
        let size = input.page().html().len();
        assert!(size < 3_000_000, "{layers} layers of {heads} heads over {time} tokens: {size} bytes");
    }
}

#[test]
fn page_loads_no_external_resources() {
    let html = PageData::new(1, 2, 3, 1).page().html();
    assert!(html.contains("default-src 'none'"));
    let addresses = html.matches("://").count();
    let namespaces = html.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(addresses, namespaces, "the namespace of SVG is the only address");
    let placeholders = ["{{title}}", "{{style}}", "{{data}}", "{{script}}"];
    assert!(!placeholders.iter().any(|name| html.contains(name)) && html.ends_with("</html>\n"));
}

#[test]
fn run_text_never_becomes_markup() {
    let plain = PageData::new(1, 2, 5, 1);
    let mut hostile = plain.clone();
    let texts =
        ["</script><script>alert(1)</script>", "<!--<script>", "{{script}}", "\u{2028}\u{0}\\\"'", "&lt;"];
    hostile.readings[0].inputs = texts.map(str::to_string).to_vec();
    hostile.readings[0].most_likely[0][0].token = texts[0].to_string();
    hostile.readings[0].sequence = texts[0].to_string();
    let mut page = hostile.page();
    page.run = "</title><script>alert(2)</script>{{data}}&amp;".to_string();
    page.config = "# </script><img src=x>".to_string();
    page.summary[0].1 = texts[0].to_string();
    page.heads.measured_on = texts[0].to_string();
    let (plain, html) = (plain.page().html(), page.html());
    for markup in ["<", "<script", "</script", "<!--", "<img"] {
        assert_eq!(html.matches(markup).count(), plain.matches(markup).count(), "{markup}");
    }
    assert!(
        html.contains("<title>&lt;/title&gt;&lt;script&gt;alert(2)&lt;/script&gt;{{data}}&amp;amp;</title>")
    );
    let (_, rest) = html.split_once("<script id=\"data\" type=\"text/plain\">").unwrap();
    let (data, _) = embedded::tests::unpacked(rest.split_once("</script>").unwrap().0);
    assert_eq!(data["readings"][0]["inputs"], serde_json::json!(texts));
    assert_eq!(data["run"].as_str().unwrap(), "</title><script>alert(2)</script>{{data}}&amp;");
    assert_eq!(data["config"].as_str().unwrap(), "# </script><img src=x>");
}
