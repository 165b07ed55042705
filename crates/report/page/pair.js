// Two maps side by side with their difference: of two heads, or of one head on two sequences.

/** The head and the sequence that the selected ones are compared with; null for the same. */
const other = { layer: null, head: null, sample: null };
/** The minimum width of the maps, in CSS pixels, which their labels are made for. */
const PAIR_MAP_SIDE = 230;
/** The sample that holds a kept input, and the input; null if no input was kept. */
let keptSample = null;
let keptInput = null;

/** Returns both sides of the comparison, each with its maps, head and name. */
function pairSides() {
  const sides = [state, { layer: other.layer ?? state.layer, head: other.head ?? state.head, sample: other.sample ?? state.sample }];
  const isTwoSamples = sides[1].sample !== state.sample;
  return sides.map(({ layer, head, sample }) => ({
    layer, head, shown: maps(sample, state.kind),
    name: componentInWords({ kind: state.kind, layer, head }) + (isTwoSamples ? ` on ${data.readings[sample].sequence}` : ""),
  }));
}

/**
 * Returns the function for the difference of two weights, null where a side has no weight; null if the maps differ in
 * size.
 */
function pairDifference(sides) {
  const [one, two] = sides;
  const isEqual = ["queries", "keys"].every((axis) => one.shown[axis].length === two.shown[axis].length);
  if (!isEqual) return null;
  return (query, key) => {
    const [a, b] = [one, two].map(({ shown, layer, head }) => shown.weight(layer, head, query, key));
    return a === null || b === null ? null : a - b;
  };
}

/** Draws the maps of both sides on one scale, and their difference. */
function drawPair() {
  if (!at("pair").open) return;
  drawPairControls();
  const sides = pairSides();
  const missing = sides.some(({ shown }) => shown.bin === 0);
  at("pair-note").hidden = !missing;
  if (missing) return at("pair-maps").replaceChildren();
  const top = Math.max(...sides.map(({ layer, head, shown }) => scaleEnd(layer, head, shown)));
  const ends = IS_SIGNED ? [`−${significant(top)}`, `+${significant(top)}`] : ["0", top < 1 ? `≥ ${significant(top)}` : "1"];
  const figures = sides.map(({ layer, head, shown, name }) => pairFigure(weightImage(layer, head, shown, top), name, shown, scaleBar(false, ...ends)));
  const difference = pairDifference(sides);
  const { shown } = sides[0];
  let largest = 0;
  if (difference) shown.queries.forEach((_, query) => shown.keys.forEach((_, key) => { largest = Math.max(largest, Math.abs(difference(query, key)) || 0); }));
  const most = roundUp(largest);
  figures.push(difference
    ? pairFigure(differenceImage(shown, difference, most), largest === 0 ? "first − second: no difference" : "first − second", shown, scaleBar(true, `−${significant(most)}`, `+${significant(most)}`))
    : element("p", { class: "muted small" }, "The sequences differ in length, so there is no difference."));
  at("pair-maps").replaceChildren(...figures);
  readPair();
}

/** Creates a bar with the colours of the scale between the values at its ends. */
function scaleBar(isChange, low, high) {
  const canvas = /** @type {HTMLCanvasElement} */ (element("canvas", { width: 100, height: 1, "aria-hidden": "true" }));
  drawScale(canvas, isChange);
  return element("div", { class: "scale-bar" }, low, canvas, high);
}

/** Labels an axis of a map with as many tokens as fit, or with positions if cells have several tokens. */
function axisLabels(cells, axis) {
  const texts = cells.map(({ text, positions }) => (positions.includes("–") ? positions : short(text, 6)));
  const widest = Math.max(...texts.map((text) => text.length));
  const stride = Math.ceil(cells.length * (axis === "down" ? 13 : 8 * widest + 4) / PAIR_MAP_SIDE);
  const labels = element("div", { class: `labels ${axis}`, "aria-hidden": "true" }, ...texts.map((text, i) => element("span", {}, i % stride === 0 ? isolated(text) : "")));
  labels.style.setProperty("--count", String(cells.length));
  return labels;
}

/** Creates the figure of a map; the pointer on it moves the cursor of all panels. */
function pairFigure(canvas, name, { queries, keys }, bar) {
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `Attention matrix: ${name}`);
  const cellAt = (event) => {
    const { width, height, left, top } = canvas.getBoundingClientRect();
    const clamped = (share, count) => Math.min(Math.max(Math.floor(share * count), 0), count - 1);
    const { queries: all, keys: columns } = maps();
    const cell = { query: clamped((event.clientY - top) / height, queries.length), key: clamped((event.clientX - left) / width, keys.length) };
    return cell.query < all.length && cell.key < columns.length ? cell : {};
  };
  canvas.addEventListener("pointermove", (event) => update(cellAt(event), { isPreview: true }));
  canvas.addEventListener("pointerleave", endPreview);
  canvas.addEventListener("click", (event) => update(cellAt(event)));
  const mark = element("i", { class: "mark" });
  const frame = element("div", { class: "frame" }, canvas, mark);
  frame.style.aspectRatio = `${keys.length} / ${queries.length}`;
  Object.assign(mark.dataset, { queries: queries.length, keys: keys.length });
  const map = element("div", { class: "map" }, axisLabels(queries, "down"), frame, axisLabels(keys, "across"));
  return element("figure", {}, map, element("figcaption", {}, name, bar));
}

/** Marks the current cell in all maps, and reads its weights. */
function readPair() {
  if (!at("pair").open || at("pair-maps").childElementCount === 0) return;
  const { query, key } = state;
  for (const mark of at("pair-maps").querySelectorAll(".mark")) {
    const { queries, keys } = mark.dataset;
    // The position may lie beyond the end of a shorter sequence.
    mark.hidden = query >= queries || key >= keys;
    Object.assign(mark.style, { left: `${100 * key / keys}%`, top: `${100 * query / queries}%`, width: `${100 / keys}%`, height: `${100 / queries}%` });
  }
  const sides = pairSides();
  const isInside = ({ shown }) => query < shown.queries.length && key < shown.keys.length;
  const weights = sides.map((side) => (isInside(side) ? side.shown.weight(side.layer, side.head, query, key) : null));
  const difference = weights.includes(null) ? null : weights[0] - weights[1];
  Object.assign(at("pair-reading").dataset, { query, key, first: weights[0] ?? "", second: weights[1] ?? "", difference: difference ?? "" });
  const cellOf = ({ shown: { queries, keys } }) => ["query ", ...cellInWords(queries[query]), " → key ", ...cellInWords(keys[key])];
  const hasSameTokens = ["queries", "keys"].every((axis) => JSON.stringify(sides[0].shown[axis]) === JSON.stringify(sides[1].shown[axis]));
  const words = sides.flatMap((side, index) => {
    const cell = hasSameTokens || !isInside(side) ? [] : [...cellOf(side), ": "];
    const weight = !isInside(side) ? "the sequence ends before this cell" : weights[index] === null ? "not visible" : formatWeight(weights[index]);
    return [`${side.name}: `, ...cell, element("b", {}, weight), index === 0 ? "; " : ""];
  });
  at("pair-reading").replaceChildren(...(hasSameTokens ? [...cellOf(sides[0]), "; "] : []), ...words,
    difference === null ? "" : `; difference ${difference >= 0 ? "+" : ""}${fixed(difference, 3)}`);
}

/** Fills the lists of heads and sequences. */
function drawPairControls() {
  const headName = (head) => (head.layer === null ? "the same head" : layerHead(head.layer, head.head));
  at("other-head").replaceChildren(...[{ layer: null, head: null }, ...allHeads].map((head) => element("option", { value: `${head.layer ?? ""} ${head.head ?? ""}` }, headName(head))));
  at("other-head").value = `${other.layer ?? ""} ${other.head ?? ""}`;
  const samples = Object.keys(data.readings).map(Number).filter((sample) => maps(sample, state.kind).bin > 0);
  const sampleText = (sample) => (earlierFrame(sample) ? `${earlierFrame(sample).name} of the run` : sampleName(sample));
  at("other-sample").replaceChildren(element("option", { value: "" }, "the same sequence"), ...samples.map((sample) => element("option", { value: sample }, sampleText(sample))));
  at("other-sample").value = other.sample ?? "";
  at("keep-input").hidden = !live || state.sample !== TYPED_SAMPLE;
}

/** Keeps a copy of the typed sequence and its maps, which later inputs are compared with. */
function storeKept() {
  keptInput = shownAnswer.input;
  keptSample = TYPED_SAMPLE + 1;
  data.readings[keptSample] = { ...data.readings[TYPED_SAMPLE], sequence: `kept input: ${data.readings[TYPED_SAMPLE].inputs.slice(0, 8).map((token) => short(token)).join(" ")} …` };
  data.maps[keptSample] = data.maps[TYPED_SAMPLE];
  for (const { kind } of data.maps[TYPED_SAMPLE]) unpacked.set(`${keptSample} ${kind}`, { ...maps(TYPED_SAMPLE, kind), weightBefore: null });
}

/** Keeps the typed sequence, and compares with it. */
function keepInput() {
  storeKept();
  Object.assign(other, { layer: null, head: null, sample: keptSample });
  drawPair();
}

function startPair() {
  at("pair").addEventListener("toggle", () => {
    const isUnset = Object.values(other).every((part) => part === null);
    // Start with two different heads.
    if (isUnset) Object.assign(other, allHeads.find(({ layer, head }) => layer !== state.layer || head !== state.head));
    drawPair();
  });
  at("other-head").addEventListener("change", (event) => {
    const [layer, head] = event.target.value.split(" ").map((text) => (text === "" ? null : Number(text)));
    Object.assign(other, { layer, head });
    drawPair();
  });
  at("other-sample").addEventListener("change", (event) => {
    other.sample = event.target.value === "" ? null : Number(event.target.value);
    drawPair();
  });
  at("keep-input").addEventListener("click", keepInput);
}
