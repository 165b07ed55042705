// The attention maps, unpacked on demand; each kind of attention has its own query and key tokens.

const KINDS = {
  decoder: { name: "Decoder self-attention", sides: ["inputs", "inputs"] },
  cross: { name: "Cross-attention", sides: ["inputs", "source"] },
  encoder: { name: "Encoder self-attention", sides: ["source", "source"] },
};

/** Describes a component, with the kind of attention of a head if the model has several. */
const componentInWords = ({ kind, layer, head }) => (kind === "feed_forward" ? `feed-forward layer ${layer}`
  : `${data.maps[0].length > 1 ? `${KINDS[kind].name.toLowerCase()}, ` : ""}${layerHead(layer, head)}`);

/**
 * Groups the tokens along an axis into cells of `bin` positions, each with its text, its positions as displayed, and
 * its first position.
 */
function axisCells(tokens, bin) {
  return Array.from({ length: Math.ceil(tokens.length / bin) }, (_, i) => {
    const from = i * bin;
    const binned = tokens.slice(from, from + bin);
    return { text: binned.length > 1 ? binned.map((token) => short(token, 8)).join(" ") : binned[0], positions: binned.length > 1 ? `${from}–${from + binned.length - 1}` : String(from), from };
  });
}

/**
 * Returns the function that maps a query to its range of visible keys, end exclusive: the listed range, or all keys.
 */
const keyRanges = (visible, keys) => (query) => visible?.[query] ?? [0, keys];

const unpacked = new Map();

/** Returns the maps of a sample and a kind of attention; their `bin` is 0 if the page lacks them. */
function maps(sample = state.sample, kind = state.kind) {
  const name = `${sample} ${kind}`;
  if (!unpacked.has(name)) {
    const { start, bin, visible } = data.maps[sample].find((maps) => maps.kind === kind) ?? { start: 0, bin: 0, visible: null };
    const [queries, keys] = KINDS[kind].sides.map((side) => (bin > 0 ? axisCells(data.readings[sample][side], bin) : []));
    const keyRange = keyRanges(visible, keys.length);
    // The offset of each query's cells: only visible cells are stored.
    const begins = [0];
    queries.forEach((_, query) => begins.push(begins[query] + keyRange(query)[1] - keyRange(query)[0]));
    const size = begins[queries.length];
    const earlierHeads = data.layers.map((_, layer) => data.layers.slice(0, layer).reduce((sum, heads) => sum + heads, 0));
    /** Returns the byte of a cell; null if the query cannot see the key. */
    const byte = (layer, head, query, key) => {
      const [first, end] = keyRange(query);
      if (key < first || key >= end) return null;
      return bytes[start + (earlierHeads[layer] + head) * size + begins[query] + key - first];
    };
    const weight = (layer, head, query, key) => weightOf(byte(layer, head, query, key));
    unpacked.set(name, { queries, keys, bin, keyRange, byte, weight, top: null, headTops: new Map() });
  }
  return unpacked.get(name);
}

/** The largest absolute weight, in pages that store negative weights (differential attention); null in others. */
const SIGNED_LIMIT = data.signed_limit ?? null;
/** True if weights can be negative, also those that the page computes. */
const IS_SIGNED = SIGNED_LIMIT !== null || Boolean(data.model?.config.differential);
/**
 * The encoding of a weight in a byte: its square root in 254 steps, or 255 for NaN. Signed weights have 127 steps on both
 * sides of zero, up to their limit.
 */
const STEPS = 254;
const NAN_BYTE = 255;
const ZERO_BYTE = SIGNED_LIMIT === null ? 0 : STEPS / 2;
const weightOf = (byte) => (byte === null ? null : byte === NAN_BYTE ? NaN : Math.sign(byte - ZERO_BYTE) * ((byte - ZERO_BYTE) / (STEPS - ZERO_BYTE)) ** 2 * (SIGNED_LIMIT ?? 1));
const byteOf = (weight) => (weight === null ? null : Number.isNaN(weight) ? NAN_BYTE : ZERO_BYTE + Math.sign(weight) * Math.round(Math.sqrt(Math.min(Math.abs(weight) / (SIGNED_LIMIT ?? 1), 1)) * (STEPS - ZERO_BYTE)));

/** Returns the quantile at `share` of the absolute weights, from the counts of their steps from zero. */
function quantile(counts, share) {
  const rank = Math.floor(counts.reduce((sum, count) => sum + count, 0) * share);
  let sum = 0;
  return weightOf(ZERO_BYTE + Math.max(counts.findIndex((count) => (sum += count) > rank), 0));
}

/**
 * Returns the absolute weight that nearly all cells of a head stay below. It is at least the largest weight of most queries in
 * the second half: early queries have few keys, and the first one puts a weight of 1 on its only key. It is also at
 * least the weight of nearly all cells, so that the cells of a head with evenly spread attention do not all have the
 * last colour of the scale.
 */
function headTop(shown, layer, head) {
  const name = `${layer} ${head}`;
  if (!shown.headTops.has(name)) {
    const [cells, rows] = [new Array(256).fill(0), new Array(256).fill(0)];
    shown.queries.forEach((_, query) => {
      let largestSteps = 0;
      const [first, end] = shown.keyRange(query);
      for (let key = first; key < end; key++) {
        const byte = shown.byte(layer, head, query, key);
        if (byte === null || byte === NAN_BYTE) continue;
        const steps = Math.abs(byte - ZERO_BYTE);
        cells[steps] += 1;
        if (steps > largestSteps) largestSteps = steps;
      }
      if (query >= Math.floor(shown.queries.length / 2)) rows[largestSteps] += 1;
    });
    shown.headTops.set(name, Math.max(quantile(cells, 0.98), quantile(rows, 0.95)));
  }
  return shown.headTops.get(name);
}

/** Rounds the end of a colour scale. */
const roundedTop = (largest) => (largest > 0.5 ? 1 : roundUp(largest));

/** Returns the weight at the end of the colour scale that all heads of a sequence share. */
function scaleTop(shown = maps()) {
  shown.top ??= roundedTop(allHeads.reduce((largest, { layer, head }) => Math.max(largest, headTop(shown, layer, head)), 0));
  return shown.top;
}

/** Returns the weight at the end of the colour scale of a head: shared by all heads of a sequence, or its own. */
const scaleEnd = (layer, head, shown = maps()) => (state.scale === "head" ? roundedTop(headTop(shown, layer, head)) : scaleTop(shown));

/** Returns the position of a value on the colour scale, -1 to 1. The square root of a value keeps its sign. */
const onScale = (share) => (state.scale === "root" ? Math.sign(share) * Math.sqrt(Math.abs(share)) : share);

/** Returns the colour of a weight, given its share of the end of the scale: signed weights have two hues, and 0 the background. */
const weightColor = (share) => (IS_SIGNED ? differenceColor(onScale(share)) : color(onScale(Math.min(share, 1))));

/** The colours of the scale as pixels, in invisibly fine steps. */
const palette = new Uint32Array(1024).map((_, i, all) => {
  const [red, green, blue] = color(i / (all.length - 1));
  return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
});

/** Returns true if maps show the differences of weights from those before the changes. */
const isDifference = () => state.difference && Boolean(maps().weightBefore);

/** Returns the largest absolute difference of a weight of a head. */
function headDifference(shown, layer, head) {
  let largest = 0;
  shown.queries.forEach((_, query) => shown.keys.forEach((_, key) => {
    largest = Math.max(largest, Math.abs(shown.weight(layer, head, query, key) - shown.weightBefore(layer, head, query, key)) || 0);
  }));
  return largest;
}

/** Returns the difference at the end of the colour scale of a head: shared by all heads of a sequence, or its own. */
function differenceEnd(layer, head, shown = maps()) {
  shown.differences ??= new Map(allHeads.map((one) => [`${one.layer} ${one.head}`, headDifference(shown, one.layer, one.head)]));
  const all = Array.from(shown.differences.values());
  shown.isSame = all.every((difference) => difference === 0);
  return roundUp(state.scale === "head" ? shown.differences.get(`${layer} ${head}`) : Math.max(...all));
}

/** Returns the colours of the difference scale, from -1 to 1, as pixels. */
function differencePalette() {
  return Uint32Array.from({ length: 511 }, (_, i) => new Uint32Array(new Uint8Array([...differenceColor((i - 255) / 255), 255]).buffer)[0]);
}

/**
 * Draws a value per cell with one pixel each, by the function for the pixel of a value: transparent for null, grey for
 * NaN.
 */
function mapPixels({ keys, queries, keyRange = (_query) => [0, keys.length] }, valueAt, pixelOf) {
  const [width, height] = [keys.length, queries.length];
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const grey = new Uint32Array(new Uint8Array([...channels(themed("muted")), 255]).buffer)[0];
  for (let query = 0; query < height; query++) {
    const [first, end] = keyRange(query);
    for (let key = first; key < Math.min(end, width); key++) {
      const value = valueAt(query, key);
      if (value === null) continue;
      pixels[query * width + key] = Number.isNaN(value) ? grey : pixelOf(value);
    }
  }
  const canvas = element("canvas", { width, height });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

/** Draws the weights of a head. */
function weightImage(layer, head, shown = maps(), top = scaleEnd(layer, head, shown)) {
  if (IS_SIGNED) return differenceImage(shown, (query, key) => shown.weight(layer, head, query, key), top);
  const last = palette.length - 1;
  return mapPixels(shown, (query, key) => shown.weight(layer, head, query, key), (value) => palette[Math.min(Math.round(onScale(value / top) * last), last)]);
}

/** Draws differences, or signed weights, from `-top` to `top`. */
function differenceImage(shown, difference, top) {
  const pixels = differencePalette();
  return mapPixels(shown, difference, (value) => pixels[255 + Math.round(onScale(Math.min(Math.max(value / top, -1), 1)) * 255)]);
}

/** Draws the map of a head on display: its weights, or their differences from before the changes. */
function mapImage(layer, head) {
  if (!isDifference()) return weightImage(layer, head);
  const shown = maps();
  const difference = (query, key) => {
    const weight = shown.weight(layer, head, query, key);
    return weight === null ? null : weight - shown.weightBefore(layer, head, query, key);
  };
  return differenceImage(shown, difference, differenceEnd(layer, head));
}

/** Returns the key with the largest weight for a query. */
function strongestKey(layer, head, query, shown = maps()) {
  let strongest = 0;
  shown.keys.forEach((_, key) => {
    if ((shown.weight(layer, head, query, key) ?? 0) > (shown.weight(layer, head, query, strongest) ?? 0)) strongest = key;
  });
  return strongest;
}

/** Describes a cell of an axis: its tokens and their positions. */
const cellInWords = (cell) => [tokenElement(cell.text), ` at ${cell.positions}`];
