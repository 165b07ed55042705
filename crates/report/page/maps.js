// The attention maps: unpacked when they are looked at, each kind of attention with its own tokens.

const KINDS = {
  decoder: { name: "Decoder self-attention", sides: ["inputs", "inputs"] },
  cross: { name: "Cross-attention", sides: ["inputs", "source"] },
  encoder: { name: "Encoder self-attention", sides: ["source", "source"] },
};

/** The positions along an axis, `bin` of them in a place. */
function places(tokens, bin) {
  return Array.from({ length: Math.ceil(tokens.length / bin) }, (_, i) => {
    const from = i * bin;
    const within = tokens.slice(from, from + bin);
    return { text: within.length > 1 ? within.map((token) => short(token, 8)).join(" ") : within[0], at: within.length > 1 ? `${from}–${from + within.length - 1}` : String(from), from };
  });
}

/** For a query the keys that it sees, from the first up to the second, which is not one of them: as listed, or all. */
const seeing = (visible, keys) => (query) => visible?.[query] ?? [0, keys];

const unpacked = new Map();

/** The maps of a sample and a kind; their `bin` is 0 where they are left out. */
function maps(sample = state.sample, kind = state.kind) {
  const name = `${sample} ${kind}`;
  if (!unpacked.has(name)) {
    const { start, bin, visible } = data.maps[sample].find((maps) => maps.kind === kind) ?? { start: 0, bin: 0, visible: null };
    const [queries, keys] = KINDS[kind].sides.map((side) => (bin > 0 ? places(data.readings[sample][side], bin) : []));
    const sees = seeing(visible, keys.length);
    // Where the cells of each query begin: only those that it sees are kept.
    const begins = [0];
    queries.forEach((_, query) => begins.push(begins[query] + sees(query)[1] - sees(query)[0]));
    const size = begins[queries.length];
    const before = data.layers.map((_, layer) => data.layers.slice(0, layer).reduce((sum, heads) => sum + heads, 0));
    /** The byte of a cell; null where a query cannot see the key. */
    const byte = (layer, head, query, key) => {
      const [first, end] = sees(query);
      if (key < first || key >= end) return null;
      return bytes[start + (before[layer] + head) * size + begins[query] + key - first];
    };
    const weight = (...place) => weightOf(byte(...place));
    unpacked.set(name, { queries, keys, bin, sees, byte, weight, top: null });
  }
  return unpacked.get(name);
}

/** A byte is the square root of a weight in 254 steps; the last one says that the weight is not a number. */
const STEPS = 254;
const NOT_A_NUMBER = 255;
const weightOf = (byte) => (byte === null ? null : byte === NOT_A_NUMBER ? NaN : (byte / STEPS) ** 2);
const byteOf = (weight) => (weight === null ? null : Number.isNaN(weight) ? NOT_A_NUMBER : Math.round(Math.sqrt(weight) * STEPS));

/** The weight of a share of all in order of size, from how often each byte occurs. */
function quantile(counts, share) {
  const place = Math.floor(counts.reduce((sum, count) => sum + count, 0) * share);
  let seen = 0;
  return weightOf(Math.max(counts.findIndex((count) => (seen += count) > place), 0));
}

/**
 * The weight of the last colour, the same for all heads of a sequence: the largest one of most later
 * queries, for the first have few keys to choose from and the very first always weighs 1; and above
 * nearly all cells, so that no head is of one colour because it spreads evenly.
 */
function scaleTop(shown = maps()) {
  if (shown.top === null) {
    let largest = 0;
    for (const { layer, head } of allHeads) {
      const [cells, rows] = [new Array(256).fill(0), new Array(256).fill(0)];
      shown.queries.forEach((_, query) => {
        let most = 0;
        shown.keys.forEach((_, key) => {
          const byte = shown.byte(layer, head, query, key);
          if (byte === null || byte === NOT_A_NUMBER) return;
          cells[byte] += 1;
          most = Math.max(most, byte);
        });
        if (query >= Math.floor(shown.queries.length / 2)) rows[most] += 1;
      });
      largest = Math.max(largest, quantile(cells, 0.98), quantile(rows, 0.95));
    }
    shown.top = largest > 0.5 ? 1 : roundUp(largest);
  }
  return shown.top;
}

/** The colours of the scale as pixels, finely enough that no step is seen. */
const palette = new Uint32Array(1024).map((_, i, all) => {
  const [red, green, blue] = color(i / (all.length - 1));
  return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
});

/** Whether maps show how weights differ from those before the changes. */
const isDifference = () => state.difference && Boolean(maps().was);

/** The largest difference of a weight by the changes, over all heads. */
function differenceTop(shown = maps()) {
  if (shown.differenceTop === undefined) {
    let most = 0;
    for (const { layer, head } of allHeads) {
      shown.queries.forEach((_, query) => shown.keys.forEach((_, key) => {
        most = Math.max(most, Math.abs(shown.weight(layer, head, query, key) - shown.was(layer, head, query, key)) || 0);
      }));
    }
    shown.isSame = most === 0;
    shown.differenceTop = roundUp(most);
  }
  return shown.differenceTop;
}

/** The colour of a difference, -1 to 1: less is vermilion, more is blue, nothing the ground. */
const differenceColor = (share) => mix(channels(themed("paper")), channels(themed(share < 0 ? "vermilion" : "blue")), Math.min(Math.abs(share), 1));

/** The colours of the scale from -1 to 1 as pixels. */
function differencePalette() {
  return Uint32Array.from({ length: 511 }, (_, i) => new Uint32Array(new Uint8Array([...differenceColor((i - 255) / 255), 255]).buffer)[0]);
}

/** A head's map as a picture of one pixel a cell, transparent where a query sees nothing, grey where a weight is not a number. */
function mapImage(layer, head, shown = maps()) {
  const difference = shown === maps() && isDifference() ? differencePalette() : null;
  const finest = (palette.length - 1) / scaleTop(shown);
  const [width, height] = [shown.keys.length, shown.queries.length];
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const grey = new Uint32Array(new Uint8Array([...channels(themed("muted")), 255]).buffer)[0];
  for (let query = 0; query < height; query++) {
    for (let key = 0; key < width; key++) {
      const value = shown.weight(layer, head, query, key);
      if (value === null) continue;
      if (Number.isNaN(value)) {
        pixels[query * width + key] = grey;
        continue;
      }
      pixels[query * width + key] = difference
        ? difference[255 + Math.round(((value - shown.was(layer, head, query, key)) / differenceTop(shown)) * 255)]
        : palette[Math.min(Math.round(value * finest), palette.length - 1)];
    }
  }
  const canvas = element("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** The key on which a query puts most weight. */
function strongestKey(layer, head, query, shown = maps()) {
  let strongest = 0;
  shown.keys.forEach((_, key) => {
    if ((shown.weight(layer, head, query, key) ?? 0) > (shown.weight(layer, head, query, strongest) ?? 0)) strongest = key;
  });
  return strongest;
}

/** A place of an axis in words: its tokens, and where they stand. */
const placeInWords = (place) => [tokenElement(place.text), ` at ${place.at}`];
