// The conversion of typed text to ids and back, with the run's vocabulary.

/** The tokens of a run's vocabulary. */
class Tokenizer {
  /**
   * @param {{kind: string, tokens: string[], pieces: any, merges: any, special: any, unknown?: string, edges?: number[], added?: string[][], answers?: {begin: number[], end: number | null}}} stored
   * `merges` for byte pairs only, and `special` for these and words, with the name of the `unknown` word; `edges` between the bins of numbers; `added` holds the tokens that the program adds before and after a text
   */
  constructor(stored) {
    this.tokens = stored.tokens;
    this.kind = stored.kind;
    this.added = stored.added ?? [[], []];
    this.answers = stored.answers ?? null; // of a model that learned only answers, the tokens around them
    this.edges = stored.edges;
    this.notation = { integers: "integers", characters: "characters", pairs: "byte pairs" }[stored.kind] ?? "words";
    this.pieces = stored.pieces ?? stored.tokens;
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]));
    // The special tokens between the texts of a table have names, such as <end>; all other tokens are characters.
    const names = this.kind === "characters" ? this.pieces.filter((piece) => Array.from(piece).length > 1) : [];
    const escaped = (name) => name.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");
    this.characters = new RegExp([...names.map(escaped), "."].join("|"), "gsu");
    if (this.kind === "words") {
      // Words and punctuation as the regular expression \w+|[^\w\s]+ of Rust splits them, between special tokens.
      const special = stored.special.map(([name]) => escaped(name)).join("|") || "(?!)";
      const letter = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}";
      this.splits = new RegExp(`${special}|(?:(?!${special})[${letter}])+|(?:(?!${special})[^${letter}\\p{White_Space}])+`, "gu");
      this.unknown = this.ids.get(stored.unknown) ?? null;
    }
    // Integers are read as numbers, also if they are symbols.
    this.hasIntegers = stored.kind === "integers" || (stored.kind === "symbols" && this.tokens.every((token) => token === "<end>" || /^(?:0|[1-9]\d*)$/.test(token)));
    // The symbols that contain spaces, with their words.
    const hasSpace = (piece) => this.notation === "words" && /\p{White_Space}/u.test(piece);
    this.phrases = this.pieces.filter(hasSpace).map((piece) => ({ piece, words: words(piece) }));
    if (stored.kind === "pairs") this.pairs = new BytePairs(stored);
  }

  /** Returns a token as in the vocabulary. */
  token(id) {
    return this.tokens[id] ?? "�";
  }

  /** Returns tokens as text that `encode` can read. */
  join(ids) {
    if (this.pairs) return this.pairs.decode(ids);
    return ids.map((id) => this.written(this.pieces[id] ?? "")).join(this.kind === "characters" ? "" : " ");
  }

  /** Returns a symbol as text: in quotes, with JSON escapes, if it would be ambiguous otherwise. */
  written(piece) {
    const isPlain = !/[\p{White_Space}\p{Cc}]/u.test(piece) && !piece.startsWith('"') && !this.phrases.some(({ words: [first] }) => first === piece);
    return this.phrases.length === 0 || isPlain ? piece : JSON.stringify(piece);
  }

  /** Returns the tokens of a text with their offsets; the id of an unknown token is null. */
  encode(text) {
    if (this.pairs) return this.pairs.encode(text);
    if (this.kind === "characters") return pieces(text, this.characters, (part, start) => this.found(part, start));
    if (this.kind === "words") {
      return pieces(text, this.splits, (part, start) => ({ id: this.ids.get(part) ?? this.unknown, text: part, start, end: start + part.length }));
    }
    const whole = this.encodeWords(text);
    if (whole.every(({ id }) => id !== null)) return whole;
    const list = this.encodeList(text);
    if (list) return list;
    if (!text.includes(",") || this.hasUnclearComma(text)) return whole;
    // Commas separate tokens if the text cannot be read otherwise.
    const split = this.encodeWords(text.replaceAll(",", " "));
    const unknown = (tokens) => tokens.filter(({ id }) => id === null).length;
    return unknown(split) < unknown(whole) ? split : whole;
  }

  /** Encodes a JSON array of symbols and numbers, such as `[1, 2]`; null for other texts. */
  encodeList(text) {
    try {
      if (!Array.isArray(JSON.parse(text))) return null;
    } catch {
      return null;
    }
    const [from, to] = [text.indexOf("[") + 1, text.lastIndexOf("]")];
    return pieces(text.slice(from, to), /"(?:[^"\\]|\\.)*"|[^\s,"]+/gu, (part, start) => {
      const { id } = this.found(unquoted(part) ?? part, 0);
      return { id, text: part, start: from + start, end: from + start + part.length };
    });
  }

  /** Encodes words between spaces. */
  encodeWords(text) {
    if (this.phrases.length > 0 || (this.kind === "symbols" && text.includes('"'))) return this.encodePhrases(text);
    return pieces(text, /\P{White_Space}+/gu, (word, start) => this.word(word, start)).flat();
  }

  /** Encodes a text whose symbols may contain spaces: in quotes, or without quotes if there is only one reading. */
  encodePhrases(text) {
    const parts = pieces(text, /"(?:[^"\\]|\\.)*"(?!\P{White_Space})|\P{White_Space}+/gu, (part, start) => ({ part, start, end: start + part.length }));
    const tokens = [];
    for (let at = 0; at < parts.length; ) {
      const { part, start, end } = parts[at];
      const quoted = unquoted(part);
      if (quoted !== null) {
        tokens.push({ id: this.ids.get(quoted) ?? null, text: part, start, end });
        at += 1;
        continue;
      }
      const alone = this.word(part, start);
      const readings = alone.every(({ id }) => id !== null) ? [{ count: 1, found: alone }] : [];
      for (const { piece, words: own } of this.phrases) {
        const last = parts[at + own.length - 1];
        if (last && own.every((word, index) => parts[at + index].part === word)) {
          readings.push({ count: own.length, found: [{ id: this.ids.get(piece) ?? null, text: text.slice(start, last.end), start, end: last.end }] });
        }
      }
      const [{ count, found }] = readings.length === 1 ? readings : [{ count: 1, found: [{ id: null, text: part, start, end }] }];
      tokens.push(...found);
      at += count;
    }
    return tokens;
  }

  /** Returns a part of a text with its id. An integer is read as a number: `07` is `7`; a number has the id of its bin. */
  found(part, start) {
    if (this.edges && !this.ids.has(part) && /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i.test(part) && Number.isFinite(Number(part))) {
      return { id: this.edges.filter((edge) => edge <= Number(part)).length, text: part, start, end: start + part.length };
    }
    const isInteger = this.hasIntegers && /^\+?\d+$/.test(part);
    const id = this.ids.get(part) ?? (isInteger ? this.ids.get(String(Number(part))) : undefined);
    return { id: id ?? null, text: part, start, end: start + part.length };
  }

  /**
   * Returns true if a comma is not a clear separator: before an empty value or in `1,000` of an integer vocabulary, or
   * between two digits of numbers in bins, where it may be a decimal comma.
   */
  hasUnclearComma(text) {
    const isGrouped = (word) => {
      const groups = word.split(",").slice(1);
      return groups.length > 0 && groups.every((group) => /^\d{3}$/.test(group)) && groups.some((group) => group.startsWith("0"));
    };
    if (this.edges) return /\d,\d/u.test(text);
    return this.kind === "integers" && (/(?:^|,)\s*,/u.test(text) || words(text).some(isGrouped));
  }

  /** Returns the tokens of a word between two spaces: one token, or its characters if each is a symbol. */
  word(word, start) {
    const unsplit = [this.found(word, start)];
    // Symbols of one character need no spaces, but integers do: `11` is never `1 1`.
    if (unsplit[0].id !== null || this.kind === "integers") return unsplit;
    const symbols = pieces(word, /./gsu, (part, at) => this.found(part, start + at));
    return symbols.every(({ id }) => id !== null) ? symbols : unsplit;
  }
}

const words = (text) => text.split(/\p{White_Space}+/u).filter((word) => word !== "");

/** Returns the symbol that a quoted part of a text stands for; null if the part is not a quoted symbol. */
function unquoted(part) {
  try {
    const value = part.startsWith('"') ? JSON.parse(part) : null;
    return typeof value === "string" ? value : null;
  } catch {
    return null;
  }
}

/** Calls `make` with the text and the offset of each match of a pattern, and returns the results. */
const pieces = (text, pattern, make) => Array.from(text.matchAll(pattern), (match) => make(match[0], match.index));

/** The pattern by which GPT-2's tokenizer splits a text before it merges bytes. */
const WORD_PATTERN = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** Byte pair encoding on bytes (Sennrich et al., 2016; Radford et al., 2019). */
class BytePairs {
  constructor({ pieces: names, merges, special }) {
    this.ids = new Map(names.map((name, id) => [name, id]));
    this.names = names;
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.special = new Map(special);
    // A character for each byte: the byte itself if it is printable, else a character from 256 on.
    const isPrintable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    let next = 256;
    this.characters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isPrintable(byte) ? byte : next++));
    this.bytes = new Map(this.characters.map((character, byte) => [character, byte]));
  }

  decode(ids) {
    const named = new Map(Array.from(this.special, ([name, id]) => [id, name]));
    const bytes = ids.flatMap((id) => (named.has(id) ? [...new TextEncoder().encode(named.get(id))]
      : Array.from(this.names[id] ?? "", (character) => this.bytes.get(character) ?? 63)));
    return new TextDecoder().decode(Uint8Array.from(bytes));
  }

  encode(text) {
    const found = [];
    let from = 0;
    while (from < text.length) {
      const [name, at] = this.nextSpecial(text, from);
      for (const match of text.slice(from, at).matchAll(WORD_PATTERN)) {
        for (const piece of this.word(match[0], from + match.index)) found.push(piece);
      }
      if (name) found.push({ id: this.special.get(name), text: name, start: at, end: at + name.length });
      from = at + (name?.length ?? 0);
    }
    return found;
  }

  /** Returns the next special token in a text and its offset; null and the end of the text if there is none. */
  nextSpecial(text, from) {
    const matches = Array.from(this.special.keys(), (name) => [name, text.indexOf(name, from)]).filter(([, at]) => at >= 0);
    return matches.sort((a, b) => a[1] - b[1] || b[0].length - a[0].length)[0] ?? [null, text.length];
  }

  /** Returns the tokens of a word, whose pairs are merged in the order of the tokenizer's training. */
  word(word, start) {
    const bytes = Array.from(new TextEncoder().encode(word));
    let parts = bytes.map((byte) => this.characters[byte]);
    for (;;) {
      const ranks = parts.slice(1).map((part, at) => this.ranks.get(`${parts[at]} ${part}`) ?? Infinity);
      const best = ranks.reduce((least, rank) => Math.min(least, rank), Infinity);
      if (!(best < Infinity)) break;
      const joined = [];
      for (let at = 0; at < parts.length; at++) {
        if (ranks[at] === best && at + 1 < parts.length) joined.push(parts[at] + parts[++at]);
        else joined.push(parts[at]);
      }
      parts = joined;
    }
    // For each byte, the offset of its character in the word; a part may end within a character.
    const offsets = Array.from(word, (character) => Array(new TextEncoder().encode(character).length).fill(character.length))
      .reduce(({ all, at }, units) => {
        for (let byte = 0; byte < units.length; byte++) all.push(at);
        return { all, at: at + units[0] };
      }, { all: [], at: 0 }).all;
    let done = 0;
    return parts.map((part) => {
      const first = offsets[done];
      done += part.length;
      const end = offsets[done] ?? word.length;
      return { id: this.ids.get(part) ?? null, text: word.slice(first, end), start: start + first, end: start + end };
    });
  }
}
