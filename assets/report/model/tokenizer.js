// From what is typed to ids and back, as the run's vocabulary has it.

/** The tokens of a run's vocabulary. */
class Tokenizer {
  /** @param {{kind: string, tokens: string[], pieces: any, merges: any, special: any}} stored the latter of byte pairs alone */
  constructor(stored) {
    this.tokens = stored.tokens;
    this.kind = stored.kind;
    this.notation = { integers: "integers", characters: "characters", pairs: "byte pairs" }[stored.kind] ?? "words";
    this.pieces = stored.pieces ?? stored.tokens;
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]));
    if (stored.kind === "pairs") this.pairs = new BytePairs(stored);
  }

  /** The vocabulary's own name of a token. */
  token(id) {
    return this.tokens[id] ?? "�";
  }

  /** A text of tokens, which `encode` reads. */
  join(ids) {
    if (this.pairs) return this.pairs.decode(ids);
    return ids.map((id) => this.pieces[id] ?? "").join(this.kind === "characters" ? "" : " ");
  }

  /** The tokens of a text, with where they stand in it; the id of what is in no vocabulary is null. */
  encode(text) {
    if (this.pairs) return this.pairs.encode(text);
    const found = (part, start) => ({ id: this.ids.get(part) ?? null, text: part, start, end: start + part.length });
    if (this.kind === "characters") return pieces(text, /./gsu, found);
    const words = pieces(text, /[^\s,]+/gu, found);
    // Words that are made of symbols of one character need no spaces.
    const split = (word) => pieces(word.text, /./gsu, (part, at) => found(part, word.start + at));
    return words.flatMap((word) => (word.id === null && split(word).every(({ id }) => id !== null) ? split(word) : [word]));
  }
}

/** What a pattern finds in a text, each as `make` has it of the part and its start. */
const pieces = (text, pattern, make) => Array.from(text.matchAll(pattern), (match) => make(match[0], match.index));

/** How GPT-2's tokenizer cuts a text before it joins bytes. */
const WORDS = /'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu;

/** Byte pair encoding on bytes (Sennrich et al., 2016; Radford et al., 2019). */
class BytePairs {
  constructor({ pieces: names, merges, special }) {
    this.ids = new Map(names.map((name, id) => [name, id]));
    this.names = names;
    this.ranks = new Map(merges.map(([left, right], rank) => [`${left} ${right}`, rank]));
    this.special = new Map(special);
    // A character for each byte: itself where it can be seen, else one behind the 256 first.
    const isSeen = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
    let next = 256;
    this.characters = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(isSeen(byte) ? byte : next++));
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
      for (const match of text.slice(from, at).matchAll(WORDS)) found.push(...this.word(match[0], from + match.index));
      if (name) found.push({ id: this.special.get(name), text: name, start: at, end: at + name.length });
      from = at + (name?.length ?? 0);
    }
    return found;
  }

  /** The next special token in a text and its place; the text's end where there is none. */
  nextSpecial(text, from) {
    const places = Array.from(this.special.keys(), (name) => [name, text.indexOf(name, from)]).filter(([, at]) => at >= 0);
    return places.sort((a, b) => a[1] - b[1] || b[0].length - a[0].length)[0] ?? [null, text.length];
  }

  /** The tokens of a word: the pair that was joined first in training is joined first. */
  word(word, start) {
    const bytes = Array.from(new TextEncoder().encode(word));
    let parts = bytes.map((byte) => this.characters[byte]);
    for (;;) {
      const ranks = parts.slice(1).map((part, at) => this.ranks.get(`${parts[at]} ${part}`) ?? Infinity);
      const best = Math.min(...ranks);
      if (!(best < Infinity)) break;
      const joined = [];
      for (let at = 0; at < parts.length; at++) {
        if (ranks[at] === best && at + 1 < parts.length) joined.push(parts[at] + parts[++at]);
        else joined.push(parts[at]);
      }
      parts = joined;
    }
    let done = 0;
    return parts.map((part) => {
      const before = new TextDecoder().decode(Uint8Array.from(bytes.slice(0, done))).replace(/�+$/u, "").length;
      done += part.length;
      const behind = new TextDecoder().decode(Uint8Array.from(bytes.slice(0, done))).replace(/�+$/u, "").length;
      return { id: this.ids.get(part) ?? null, text: word.slice(before, behind), start: start + before, end: start + behind };
    });
  }
}
