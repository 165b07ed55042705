//! The documents of a text, which `data.documents` = "separate" keeps apart.
//!
//! A file of a folder is a document. Within a file, the end-of-text token of the tokenizer ends a document. The end
//! token belongs to the document that it ends; the next token begins a document and is not a target.

use super::config::{DataConfig, Documents};
use super::ids::Ids;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};

/// Returns the first id of each document but the first one, in ascending order; empty if `config` joins the documents.
/// `file_starts` holds the first id of each file.
///
/// # Errors
/// Returns an error if the documents are separate but the text has only one. A file that is read as one split may be a
/// single document.
pub(super) fn starts(
    config: &DataConfig,
    ids: &Ids,
    file_starts: &[usize],
    vocabulary: &Vocabulary,
) -> Result<Vec<usize>> {
    if config.documents == Documents::Joined {
        return Ok(Vec::new());
    }
    let mut starts = file_starts.to_vec();
    if let Some(end) = vocabulary.end() {
        let ends = ids.iter(0..ids.len()).enumerate().filter(|(_, id)| *id == end);
        starts.extend(ends.map(|(index, _)| index + 1));
    }
    starts.sort_unstable();
    starts.dedup();
    starts.retain(|start| (1..ids.len()).contains(start));
    if starts.is_empty() && !config.is_one_split() {
        return Err(single(vocabulary));
    }
    Ok(starts)
}

/// Returns the error for a training text that is a single document.
pub(super) fn single(vocabulary: &Vocabulary) -> Error {
    let problem = match vocabulary.end() {
            Some(end) => format!(
                "needs several documents, but the text is one file without the end-of-text token `{}`; write the \
                 token after each document, or set `data.path` to a folder with a file per document",
                vocabulary.token(end)
            ),
            None => "needs several documents, but the text is one file and its tokens do not include an \
                     end-of-text token; set `data.path` to a folder with a file per document, or `data.tokens` to \
                     a tokenizer with an end-of-text token"
                .to_string(),
    };
    Error::key("data.documents", "\"separate\"", problem)
}

/// Returns the document of each of the user's `tokens`, numbered from 0; `None` if they are one document or if
/// `documents` are joined.
pub(crate) fn documents_of(
    documents: Documents,
    tokens: &[u32],
    vocabulary: &Vocabulary,
) -> Option<Vec<u32>> {
    let end = vocabulary.end().filter(|_| documents == Documents::Separate)?;
    let number = |number: &mut u32, &token: &u32| {
        let own = *number;
        *number += u32::from(token == end);
        Some(own)
    };
    several(tokens.iter().scan(0, number).collect())
}

/// Returns the documents of the tokens of a sequence if there is more than one.
pub(crate) fn several(documents: Vec<u32>) -> Option<Vec<u32>> {
    (documents.first() != documents.last()).then_some(documents)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::data::config::{Source, Tokens};
    use crate::data::{Batch, Dataset, Loader, Role, load, load_whole};

    /// A tokenizer of letters with an end-of-text token, which is 0.
    const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [{"id": 0,
        "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true}], "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "vocab": {"<|endoftext|>": 0, "a": 1, "b": 2, "c": 3, "d": 4}, "merges": []}}"#;

    /// Files in a temporary folder, read with separate documents.
    struct Texts(tempfile::TempDir);

    impl Texts {
        fn new(files: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("texts")).unwrap();
            for (name, text) in files {
                fs::write(folder.path().join("texts").join(name), text).unwrap();
            }
            fs::write(folder.path().join("tokenizer.json"), TOKENIZER).unwrap();
            Self(folder)
        }

        fn config(&self, name: &str, is_tokenized: bool) -> DataConfig {
            DataConfig {
                source: Some(Source::Text),
                path: self.0.path().join("texts").join(name).into(),
                tokens: match is_tokenized {
                    true => Tokens::File(self.0.path().join("tokenizer.json")),
                    false => Tokens::Characters,
                },
                documents: Documents::Separate,
                length: 5,
                valid_fraction: 0.2,
                ..DataConfig::default()
            }
        }
    }

    fn first_batch(dataset: &Dataset) -> Batch {
        dataset.train.batches(3).next().unwrap()
    }

    fn counts(batch: &Batch) -> Vec<u8> {
        batch.roles.iter().map(|role| u8::from(*role != Role::Padding)).collect()
    }

    #[test]
    fn end_tokens_and_files_separate_documents() {
        // Two files: abc, dd, a and bbb, ccddaabbcc.
        let texts = Texts::new(&[
            ("1", "abc<|endoftext|>dd<|endoftext|>a"),
            ("2", "bbb<|endoftext|>ccddaabbccddaabbccdd"),
        ]);
        let dataset = load(&texts.config("", true), 0).unwrap();
        let batch = first_batch(&dataset);
        assert_eq!(batch.inputs, [1, 2, 3, 0, 4, 4, 0, 1, 0, 2, 2, 2, 0, 3, 3]);
        assert_eq!(batch.targets, [2, 3, 0, 4, 4, 0, 1, 0, 2, 2, 2, 0, 3, 3, 4]);
        // The end token is a target, and the first token of the next document is not.
        assert_eq!(counts(&batch), [1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1]);
        let expected = [[0, 0, 0, 0, 1], [0, 0, 1, 1, 2], [0, 0, 0, 1, 1]].concat();
        assert_eq!(batch.documents.as_deref(), Some(&expected[..]));
        assert_eq!(batch.part(1..3).documents.as_deref(), Some(&expected[5..]));
        let lengths = dataset.train.document_lengths();
        assert_eq!(lengths[..4], [4, 3, 2, 4]);
        let counted: usize = dataset.train.batches(2).map(|batch| batch.counted()).sum();
        assert_eq!(dataset.train.targets(), counted);
        let (ids, _) = dataset.train.stream().unwrap();
        assert_eq!(counted + lengths.len(), dataset.train.stream().unwrap().1.len(), "{}", ids.len());
        // Windows at random offsets and of other lengths follow the same rule.
        let loader = Loader::new(dataset.train.clone(), 2, 5);
        let others = (0..20).map(|epoch| loader.batch(epoch, 0));
        let longer = dataset.train.in_windows_of(11).unwrap();
        for batch in others.chain(longer.batches(1)) {
            for (row, inputs) in batch.inputs.chunks(batch.time).enumerate() {
                let first = row * batch.time;
                let documents = batch.documents.as_ref().map(|all| &all[first..][..batch.time]);
                for (position, &input) in
                    inputs.iter().enumerate().filter(|(at, _)| counts(&batch)[first + at] == 1)
                {
                    let next = documents.and_then(|all| Some(all.get(position + 1)? == &all[position]));
                    assert!(input != 0 && next != Some(false), "{batch:?}");
                }
            }
        }
    }

    #[test]
    fn files_of_characters_are_documents() {
        let texts = Texts::new(&[("1", "ab"), ("2", ""), ("3", "cd"), ("4", &"abcdabcd".repeat(3))]);
        let dataset = load(&texts.config("", false), 0).unwrap();
        let batch = first_batch(&dataset);
        assert_eq!(dataset.vocabulary.decode(&batch.inputs[..5]), "ab\ncd");
        assert_eq!(
            (&counts(&batch)[..5], &batch.documents.unwrap()[..5]),
            (&[1, 1, 0, 1, 1][..], &[0, 0, 0, 1, 1][..])
        );
    }

    #[test]
    fn joined_documents_are_one_stream() {
        let texts = Texts::new(&[("1", "abc<|endoftext|>dd<|endoftext|>"), ("2", &"abcd".repeat(9))]);
        let config = texts.config("", true);
        let joined = load(&DataConfig { documents: Documents::Joined, ..config.clone() }, 0).unwrap();
        let separate = load(&config, 0).unwrap();
        let batch = first_batch(&joined);
        assert!(batch.documents.is_none() && counts(&batch) == [1; 15]);
        assert_eq!(batch.inputs, first_batch(&separate).inputs);
        assert_eq!(joined.train.document_lengths(), [0; 0]);
        assert_ne!(joined.fingerprint(), separate.fingerprint());
    }

    #[test]
    fn windows_within_a_document_have_no_mask() {
        let texts = Texts::new(&[("1", &"abcd".repeat(9)), ("2", &"abcd".repeat(9))]);
        let dataset = load(&texts.config("", false), 0).unwrap();
        let batch = first_batch(&dataset);
        assert!(batch.documents.is_none() && counts(&batch) == [1; 15]);
    }

    #[test]
    fn single_documents_are_refused_in_training() {
        let texts = Texts::new(&[("1", &"abcd".repeat(9))]);
        for (is_tokenized, remedy) in
            [(true, "token `<|endoftext|>`; write"), (false, "; set `data.path` to a folder")]
        {
            let config = texts.config("1", is_tokenized);
            let error = load(&config, 0).unwrap_err();
            let message = error.to_string();
            assert!(
                message.starts_with("`data.documents` = \"separate\" needs several documents"),
                "{message}"
            );
            assert!(message.contains(remedy) && error.exit_code() == 2, "{message}");
            // A run of several documents can be evaluated on one.
            let joined = load(&DataConfig { documents: Documents::Joined, ..config.clone() }, 0).unwrap();
            let whole = load_whole(&config, 0, &joined.vocabulary).unwrap();
            assert_eq!(whole.valid.targets(), 35);
        }
    }

    #[test]
    fn inputs_split_after_end_tokens() {
        let texts = Texts::new(&[("1", "ab<|endoftext|>cd"), ("2", &"abcd".repeat(9))]);
        let vocabulary = load(&texts.config("", true), 0).unwrap().vocabulary;
        let of = |tokens: &[u32]| documents_of(Documents::Separate, tokens, &vocabulary);
        assert_eq!(of(&[1, 0, 2, 2, 0, 3]), Some(vec![0, 0, 1, 1, 1, 2]));
        assert_eq!((of(&[1, 2, 0]), of(&[1, 2]), of(&[])), (None, None, None));
        assert_eq!(documents_of(Documents::Joined, &[1, 0, 2], &vocabulary), None);
    }

    #[test]
    fn the_config_can_name_the_end_of_a_text() {
        // The token `d` ends a document instead of the declared one.
        let texts = Texts::new(&[("a.txt", &"abdcad".repeat(9))]);
        let named = |name: &str| DataConfig { end_of_text: name.into(), ..texts.config("a.txt", true) };
        let dataset = load(&named("d"), 0).unwrap();
        assert_eq!(dataset.vocabulary.end(), Some(4));
        assert_eq!(dataset.train.document_lengths()[..3], [3, 3, 3]);
        let whole = load_whole(&named("d"), 0, &dataset.vocabulary).unwrap();
        assert_eq!(whole.valid.document_lengths().len(), 18);
        let unknown = load(&named("<halt>"), 0).unwrap_err().to_string();
        assert!(unknown.starts_with("`data.end_of_text` = \"<halt>\" is not a token of "), "{unknown}");
    }
}
