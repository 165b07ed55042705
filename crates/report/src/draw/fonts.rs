//! Fonts: the embedded DejaVu Sans, so that Latin, Greek, Cyrillic, Arabic and Hebrew look the same on every machine,
//! and the fonts installed on this machine for all other characters. Installed fonts are searched only if DejaVu lacks
//! a character.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{LazyLock, Mutex, PoisonError};

use ab_glyph::{Font, FontRef, GlyphId, GlyphImageFormat};
use rustybuzz::ttf_parser;

/// Requests the coloured form of an emoji; has no form of its own.
pub(super) const EMOJI_FORM: char = '\u{fe0f}';

/// A font: its shaping rules and its outlines.
pub(super) struct FontFace {
    pub shaper: rustybuzz::Face<'static>,
    pub outlines: FontRef<'static>,
    /// The contents of the font file, and the index of the font in it.
    pub data: &'static [u8],
    pub index: u32,
}

impl FontFace {
    fn new(data: &'static [u8], index: u32) -> Option<Self> {
        let outlines = FontRef::try_from_slice_and_index(data, index).ok()?;
        Some(Self { shaper: rustybuzz::Face::from_slice(data, index)?, outlines, data, index })
    }

    /// Returns true if the font has a glyph for the character.
    pub fn has(&self, character: char) -> bool {
        self.outlines.glyph_id(character).0 != 0
    }

    /// Returns true if the character can be drawn: its glyph has an outline or a bitmap. Glyphs of some emoji fonts
    /// consist of gradients instead.
    fn draws(&self, character: char) -> bool {
        let glyph = self.outlines.glyph_id(character);
        let has_outline = || self.outlines.outline(glyph).is_some_and(|outline| !outline.curves.is_empty());
        glyph.0 != 0 && (character.is_whitespace() || has_outline() || self.bitmap(glyph).is_some())
    }

    /// Returns the largest bitmap of a glyph, as PNG.
    pub fn bitmap(&self, glyph: GlyphId) -> Option<&[u8]> {
        let bitmap = self.outlines.glyph_raster_image2(glyph, u16::MAX)?;
        (matches!(bitmap.format, GlyphImageFormat::Png)).then_some(bitmap.data)
    }
}

/// Returns the embedded font. Invalid font data would be a bug in the `dejavu` crate.
pub(super) fn embedded(bold: bool) -> &'static FontFace {
    static FACES: LazyLock<[FontFace; 2]> = LazyLock::new(|| {
        [dejavu::sans::regular(), dejavu::sans::bold()]
            .map(|bytes| FontFace::new(bytes, 0).expect("the embedded DejaVu fonts are valid"))
    });
    &FACES[usize::from(bold)]
}

/// Returns the font that draws a group of characters that form one glyph: the embedded font, or else the first
/// installed font with all of them.
pub(super) fn covering(group: &str, bold: bool) -> Option<&'static FontFace> {
    let embedded = embedded(bold);
    // DejaVu has no coloured emoji.
    if group.chars().all(|character| embedded.has(character)) && !group.contains(EMOJI_FORM) {
        return Some(embedded);
    }
    installed(group)
}

/// The key of a font: its file with the characters that it covers.
struct Candidate {
    id: fontdb::ID,
    is_colored: bool,
    /// The code points with a glyph, in ascending order.
    covered: Vec<RangeInclusive<u32>>,
}

impl Candidate {
    fn covers(&self, character: char) -> bool {
        let code = character as u32;
        let after = self.covered.partition_point(|range| *range.start() <= code);
        after > 0 && self.covered[after - 1].contains(&code)
    }

    fn covers_all(&self, group: &str) -> bool {
        let mut characters = group.chars().filter(|&character| character != EMOJI_FORM);
        characters.all(|character| self.covers(character)) && (self.is_colored || !group.contains(EMOJI_FORM))
    }
}

/// The installed fonts, from the most to the least suitable.
struct Installed {
    fonts: fontdb::Database,
    candidates: Vec<Candidate>,
}

impl Installed {
    fn find() -> Self {
        let mut fonts = fontdb::Database::new();
        fonts.load_system_fonts();
        let mut faces: Vec<_> = fonts.faces().map(|face| (rank(face), face.id)).collect();
        faces.sort();
        let candidates = faces.into_iter().filter_map(|(_, id)| candidate(&fonts, id)).collect();
        Self { fonts, candidates }
    }

    /// Opens a font. Its file stays in memory, because pictures use it again and again.
    fn open(&self, id: fontdb::ID) -> Option<&'static FontFace> {
        let (data, index) = self.fonts.with_face_data(id, |data, index| (data.to_vec(), index))?;
        FontFace::new(data.leak(), index).map(|face| &*Box::leak(Box::new(face)))
    }
}

/// Returns the order of preference: upright, of regular weight and width, and sans serif, like DejaVu.
fn rank(face: &fontdb::FaceInfo) -> (bool, u16, bool, bool, String) {
    let name = face.families.first().map_or(String::new(), |(name, _)| name.clone());
    let is_normal =
        face.style == fontdb::Style::Normal && face.stretch == fontdb::Stretch::Normal && !face.monospaced;
    (!is_normal, face.weight.0.abs_diff(400), !name.contains("Sans"), name.contains("Mono"), name)
}

/// Reads the characters that a font covers. Skips fonts that draw the same sign for every character.
fn candidate(fonts: &fontdb::Database, id: fontdb::ID) -> Option<Candidate> {
    let name = &fonts.face(id)?.families.first()?.0;
    if name.contains("LastResort") || name.contains("Blank") {
        return None;
    }
    fonts.with_face_data(id, |data, index| {
        let face = ttf_parser::Face::parse(data, index).ok()?;
        let mut covered = Vec::<RangeInclusive<u32>>::new();
        let mut codes = Vec::new();
        for table in face.tables().cmap?.subtables.into_iter().filter(|table| table.is_unicode()) {
            table.codepoints(|code| codes.push(code));
        }
        codes.sort_unstable();
        for code in codes {
            match covered.last_mut() {
                Some(last) if code <= last.end() + 1 => *last = *last.start()..=code,
                _ => covered.push(code..=code),
            }
        }
        let is_colored = face.tables().cbdt.is_some() || face.tables().sbix.is_some();
        Some(Candidate { id, is_colored, covered })
    })?
}

fn installed(group: &str) -> Option<&'static FontFace> {
    static INSTALLED: LazyLock<Installed> = LazyLock::new(Installed::find);
    static OPENED: Mutex<Option<HashMap<fontdb::ID, Option<&'static FontFace>>>> = Mutex::new(None);
    let first = group.chars().next()?;
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.get_or_insert_default();
    let mut found = INSTALLED.candidates.iter().filter(|candidate| candidate.covers_all(group));
    found.find_map(|candidate| {
        let face = *opened.entry(candidate.id).or_insert_with(|| INSTALLED.open(candidate.id));
        face.filter(|face| face.draws(first))
    })
}
