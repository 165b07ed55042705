//! Runs, studies and comparisons as the plain data of `causal-attention-report`, and their pictures and pages as files.
//!
//! [`RunData`] is the content of a run folder. [`RunData::draw`] draws all its pictures;
//! [`Page::pictures`](causal_attention_report::page::Page::pictures) draws the pictures of a single sequence.
//!
//! | file | from |
//! |---|---|
//! | `run_data`, `sample_views`, `page` | a run folder and its weights |
//! | `curves` | the rows of a run; its losses at several lengths; a prediction for more workers |
//! | `reading`, `scores` | a sequence with the attention and predictions of a model; the scores of heads |
//! | `live` | the weights and the vocabulary of a model, which its page runs |
//! | `circuit`, `phases`, `fourier` | an explanation; the phases of a run; its Fourier analysis |
//! | `study`, `comparison` | a study; runs compared with each other |

mod circuit;
mod comparison;
mod curves;
mod fourier;
mod live;
mod page;
mod phases;
mod reading;
mod run_data;
mod sample_views;
mod scores;
mod study;

use std::path::{Path, PathBuf};

use causal_attention_report::{Picture, Style};

use crate::error::Result;
use crate::files::{create, write_atomically};

pub use circuit::pictures as circuit_pictures;
pub use comparison::{comparison_page, comparison_pictures};
pub use curves::{lengths_picture, scaling_picture};
pub use fourier::fourier_picture;
pub use live::{StoredMeans, live_model};
pub use page::page;
pub use phases::phases_picture;
pub use reading::reading;
pub use run_data::RunData;
pub use scores::chance;
pub use study::{draw_study, rate_finder};

/// Saves pictures into a folder, which is created if it does not exist, and returns their paths.
///
/// # Errors
/// Returns an error if the pictures cannot be written.
pub fn save_all(pictures: &[Picture], folder: &Path, style: &Style) -> Result<Vec<PathBuf>> {
    create(folder)?;
    let save = |picture: &Picture| {
        let path = folder.join(picture.file_name(style));
        write_atomically(&path, &picture.encode(style)?)?;
        Ok(path)
    };
    pictures.iter().map(save).collect()
}
