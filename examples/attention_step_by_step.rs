//! Attention over "Your journey starts with one step", computed step by step with all numbers printed.
//!
//!     cargo run --release --example attention_step_by_step
//!
//! The sections follow the files of `crates/nn/src/attention/`: score, simple, trainable, causal, multi-head.

use burn::module::{AutodiffModule, Param};
use burn::nn::{DropoutConfig, Linear};
use burn::prelude::*;
use burn_autodiff::Autodiff;
use burn_flex::Flex;
use causal_attention::attention::causal::{CausalAttention, mask_scores, mask_weights, renormalise};
use causal_attention::attention::mask::{Mask, causal_mask};
use causal_attention::attention::{Masking, StackedHeads, TrainableAttention, score, simple};
use causal_attention::ops::{self, ScorePosition};
use causal_attention::terminal::say;
use causal_attention::{Error, Result};

/// The backend of the example. It is differentiable, because dropout is inactive on other backends.
type B = Autodiff<Flex>;

const WORDS: [&str; 6] = ["Your", "journey", "starts", "with", "one", "step"];

/// The embedding of each word, a vector of three numbers.
const EMBEDDINGS: [[f32; 3]; 6] = [
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.10],
    [0.05, 0.80, 0.55],
];

/// The three matrices from width 3 to width 2, as drawn by `torch.rand` with seed 123.
const QUERY: [[f32; 2]; 3] = [[0.296112, 0.516562], [0.251671, 0.688557], [0.073972, 0.866522]];
const KEY: [[f32; 2]; 3] = [[0.136580, 0.102479], [0.184056, 0.726447], [0.315254, 0.687107]];
const VALUE: [[f32; 2]; 3] = [[0.075635, 0.196638], [0.316412, 0.401740], [0.118568, 0.827395]];

fn main() -> Result<()> {
    let device = Default::default();
    B::seed(&device, 123);
    let x = Tensor::<B, 2>::from_floats(EMBEDDINGS, &device);

    simple_attention(&x)?;
    let head = trainable_attention(&x)?;
    causal_attention(&x, &head)?;
    dropout(&x, &head)?;
    many_heads(&x, &head)
}

fn simple_attention(x: &Tensor<B, 2>) -> Result<()> {
    heading("1. Attention without weights");
    say("Six tokens, each a vector of three numbers.");
    show(&[table("x", &WORDS, &["x1", "x2", "x3"], x)?]);

    say("Query \"journey\": the score of each token is its dot product with \"journey\".");
    let journey = simple::attend_from(x.clone(), 1)?;
    show(&[table("scores", &["journey"], &WORDS, &journey.scores.unsqueeze())?]);
    say("Softmax turns the scores into weights: positive numbers that sum to one.");
    show(&[table("weights", &["journey"], &WORDS, &journey.weights.unsqueeze())?]);
    say("The context of \"journey\" is the mean of all tokens, weighted by these weights.");
    show(&[table("context", &["journey"], &["c1", "c2", "c3"], &journey.context.unsqueeze())?]);

    say("All six queries at once: two matrix products, and a softmax over each row.");
    let all = simple::attend(x.clone())?;
    show(&[
        table("scores = x x^T", &WORDS, &WORDS, &all.scores)?,
        table("weights = softmax(scores)", &WORDS, &WORDS, &all.weights)?,
    ]);
    show(&[table("context = weights x", &WORDS, &["c1", "c2", "c3"], &all.context)?]);

    say("Here, a token is its own query, key and value. Among vectors of equal length, the dot product is");
    say("largest for equal vectors (x.y = |x| |y| cos). So without trained weights, equal tokens attend to");
    say("each other most. Below, every token has length one, and \"step\" occurs twice.");
    let words = ["step", "journey", "with", "step"];
    let rows = Tensor::cat([5, 1, 3, 5].map(|row| x.clone().narrow(0, row, 1)).to_vec(), 0);
    let length = rows.clone().powf_scalar(2.0).sum_dim(1).sqrt();
    let equal = simple::attend(rows / length)?;
    show(&[
        table("scores", &words, &words, &equal.scores)?,
        table("weights", &words, &words, &equal.weights)?,
    ]);
    Ok(())
}

fn trainable_attention(x: &Tensor<B, 2>) -> Result<TrainableAttention<B>> {
    heading("2. Trainable attention");
    say("Three matrices from width 3 to width 2 compute queries, keys and values.");
    let linear = |weight: [[f32; 2]; 3]| Linear {
        weight: Param::from_tensor(Tensor::<B, 2>::from_floats(weight, &x.device())),
        bias: None,
    };
    let head = TrainableAttention { query: linear(QUERY), key: linear(KEY), value: linear(VALUE) };
    let (rows, columns) = (["x1", "x2", "x3"], ["1", "2"]);
    show(&[
        table("W_query", &rows, &columns, &head.query.weight.val())?,
        table("W_key", &rows, &columns, &head.key.weight.val())?,
        table("W_value", &rows, &columns, &head.value.weight.val())?,
    ]);

    say(
        "Each token has a query (what it looks for), a key (what queries compare with) and a value (its content).",
    );
    let [query, key, value] = head.project(x.clone())?;
    show(&[
        table("Q = x W_query", &WORDS, &["q1", "q2"], &query)?,
        table("K = x W_key", &WORDS, &["k1", "k2"], &key)?,
        table("V = x W_value", &WORDS, &["v1", "v2"], &value)?,
    ]);

    say("Scores are dot products of queries and keys, so the matrices determine the attention.");
    let attended = head.forward(x.clone())?;
    show(&[table("scores = Q K^T", &WORDS, &WORDS, &attended.scores)?]);
    say(
        "Dividing them by the square root of the width, 2, keeps them small, so the softmax does not saturate.",
    );
    show(&[table("weights = softmax(scores / sqrt 2)", &WORDS, &WORDS, &attended.weights)?]);
    say("The query of \"journey\" alone gives its row of the scores, the weights and the context.");
    let scores = score::scores(query.narrow(0, 1, 1), key)?;
    let weights = score::weights(scores.clone(), 2);
    let context = score::context(weights.clone(), value)?;
    show(&[
        table("scores", &["journey"], &WORDS, &scores)?,
        table("weights", &["journey"], &WORDS, &weights)?,
    ]);
    show(&[
        table("context", &["journey"], &["c1", "c2"], &context)?,
        table("context of all", &WORDS, &["c1", "c2"], &attended.context)?,
    ]);
    Ok(head)
}

fn causal_attention(x: &Tensor<B, 2>, head: &TrainableAttention<B>) -> Result<()> {
    heading("3. Causal attention");
    say(
        "A token must not attend to later ones, because the model predicts them. There are two ways to ensure this.",
    );
    let open = head.forward(x.clone())?;
    let hidden = causal_mask(6, &x.device());
    say("Left: weights above the diagonal are set to zero. Right: scores above it are set to -inf.");
    let masked_weights = mask_weights(open.weights, hidden.clone())?;
    let masked_scores = mask_scores(open.scores, hidden)?;
    show(&[
        table("weights x triangle", &WORDS, &WORDS, &masked_weights)?,
        table("masked scores", &WORDS, &WORDS, &masked_scores)?,
    ]);
    say("Left: each row is divided by its sum. Right: a softmax, in which exp(-inf) = 0. The results agree.");
    show(&[
        table("renormalised", &WORDS, &WORDS, &renormalise(masked_weights))?,
        table("softmax", &WORDS, &WORDS, &score::weights(masked_scores, 2))?,
    ]);
    Ok(())
}

fn dropout(x: &Tensor<B, 2>, head: &TrainableAttention<B>) -> Result<()> {
    heading("4. Dropout on the weights");
    say(
        "At a rate of 0.5, about half of the elements become zero and the others double, which preserves the mean.",
    );
    let half = DropoutConfig::new(0.5).init();
    let ones = Tensor::<B, 2>::ones([6, 6], &x.device());
    say("Left: on ones. Right: on the causal weights, so that no token depends on a single other token.");
    let causal = CausalAttention {
        projection: head.clone(),
        dropout: half.clone(),
        hidden: causal_mask(6, &x.device()),
    };
    let batch = Tensor::stack::<3>(vec![x.clone(), x.clone()], 0);
    let training = causal.forward(batch.clone(), Masking::Scores)?;
    show(&[
        table("dropout(1)", &WORDS, &WORDS, &ops::dropout(&half, ones))?,
        table("dropout(weights)", &WORDS, &WORDS, &entry(&training.weights, 0))?,
    ]);
    say("A batch with the sentence twice: each copy has its own mask in training, and no mask in inference.");
    let inference = causal.valid().forward(batch.inner(), Masking::Scores)?;
    let inference = Tensor::from_inner(inference.context);
    let columns = ["c1", "c2"];
    show(&[
        table("training, first", &WORDS, &columns, &entry(&training.context, 0))?,
        table("second", &WORDS, &columns, &entry(&training.context, 1))?,
        table("inference, first", &WORDS, &columns, &entry(&inference, 0))?,
        table("second", &WORDS, &columns, &entry(&inference, 1))?,
    ]);
    Ok(())
}

fn many_heads(x: &Tensor<B, 2>, head: &TrainableAttention<B>) -> Result<()> {
    heading("5. From one head to many");
    say("Two heads with separate matrices each compute a context of width 2.");
    let hidden = causal_mask(6, &x.device());
    let none = DropoutConfig::new(0.0).init();
    let one = |projection| CausalAttention { projection, dropout: none.clone(), hidden: hidden.clone() };
    // The second head swaps the first one's query and key matrices; any others would do.
    let TrainableAttention { query, key, value } = head.clone();
    let other = TrainableAttention { query: key, key: query, value };
    let stacked =
        StackedHeads { heads: vec![one(head.clone()), one(other)], output: None, dropout: none.clone() };
    let batch: Tensor<B, 3> = x.clone().unsqueeze();
    let (context, weights) = stacked.forward_with_weights(batch.clone())?;
    let map = |index| weights.clone().narrow(1, index, 1).reshape([6, 6]);
    show(&[
        table("weights of head 1", &WORDS, &WORDS, &map(0))?,
        table("weights of head 2", &WORDS, &WORDS, &map(1))?,
    ]);
    say(
        "Concatenated, the contexts have width 4. One matrix for all heads gives the same result in one product.",
    );
    let split = stacked.to_split();
    let columns = ["1.c1", "1.c2", "2.c1", "2.c2"];
    show(&[
        table("stacked", &WORDS, &columns, &entry(&context, 0))?,
        table("split", &WORDS, &columns, &entry(&split.forward(batch)?, 0))?,
    ]);

    split_of_heads(&x.device())?;
    say("With queries, keys and values in one matrix as well, this is the attention of the models.");
    let square = causal_attention::attention::SplitHeadsConfig::new(4, 4, 2).init::<B>(&x.device())?;
    let input = context;
    let fused = square.to_fused()?;
    let outputs =
        [square.forward(input.clone())?, fused.forward(input, &Mask::causal(), &ScorePosition::None)?];
    let columns = ["1", "2", "3", "4"];
    show(&[
        table("split, randomly initialised", &WORDS, &columns, &entry(&outputs[0], 0))?,
        table("fused, converted from split", &WORDS, &columns, &entry(&outputs[1], 0))?,
    ]);
    Ok(())
}

/// Shows how the columns of one matrix are split over heads.
fn split_of_heads(device: &Device<B>) -> Result<()> {
    say("How one matrix is split: two sequences of three tokens with six numbers each, [2, 3, 6].");
    let numbers = Tensor::<B, 1, Int>::arange(0..36, device).float().reshape([2, 3, 6]);
    let positions = ["time 1", "time 2", "time 3"];
    let wide = ["1", "2", "3", "4", "5", "6"];
    show(&[
        table("sequence 1", &positions, &wide, &entry(&numbers, 0))?,
        table("sequence 2", &positions, &wide, &entry(&numbers, 1))?,
    ]);
    say("Reshaped to [2, 3, 2, 3] and transposed to [2, 2, 3, 3] (batch, heads, time, d_head), each head");
    say("has its three columns at every position, and one batched product serves all heads.");
    let heads = numbers.reshape([2, 3, 2, 3]).swap_dims(1, 2);
    let narrow = ["1", "2", "3"];
    for sequence in 0..2 {
        let part = |head: usize| {
            let title = format!("sequence {}, head {}", sequence + 1, head + 1);
            let part = heads.clone().slice([sequence..sequence + 1, head..head + 1]).reshape([3, 3]);
            table(&title, &positions, &narrow, &part)
        };
        show(&[part(0)?, part(1)?]);
    }
    Ok(())
}

/// Returns one entry of a batch.
fn entry(batch: &Tensor<B, 3>, index: usize) -> Tensor<B, 2> {
    batch.clone().narrow(0, index, 1).squeeze_dim(0)
}

fn heading(text: &str) {
    say(text);
    say(&"=".repeat(text.len()));
    say("");
}

/// Formats a matrix as lines of text, with a title and names of rows and columns.
fn table(title: &str, rows: &[&str], columns: &[&str], matrix: &Tensor<B, 2>) -> Result<Vec<String>> {
    let values = matrix.to_data().to_vec::<f32>().map_err(|error| Error::Failed(format!("{error:?}")))?;
    let width = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let header: String = columns.iter().map(|column| format!("{column:>9}")).collect();
    let mut lines = vec![title.to_string(), format!("{:width$}{header}", "")];
    for (row, values) in rows.iter().zip(values.chunks(columns.len())) {
        let numbers: String = values.iter().map(|value| format!("{value:>9.4}")).collect();
        lines.push(format!("{row:width$}{numbers}"));
    }
    Ok(lines)
}

/// Prints tables next to each other.
fn show(tables: &[Vec<String>]) {
    say("");
    let height = tables.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let cells = tables.iter().map(|table| {
            let width = table.iter().map(|line| line.chars().count()).max().unwrap_or(0);
            format!("{:width$}", table.get(line).map_or("", String::as_str))
        });
        say(&format!("  {}", cells.collect::<Vec<_>>().join("     ").trim_end()));
    }
    say("");
}
