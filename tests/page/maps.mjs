// Explores the maps of a page: every head by clicks, with the mouse and as tokens, all heads, lines, pairs and scales.

import { expectedMaps, checkReading, close, expected, near, radio, scores, some, weightsOf } from "./expected.mjs";
import { explorePredictions } from "./charts.mjs";
import { check, choose, dataset, middle, page, point, press, same, screenshot } from "./hands.mjs";

const { value, move, key } = page;
/** The number of first samples whose maps are explored, in addition to the last sample. */
const FIRST_SAMPLES = 2;

async function exploreMatrix(map) {
  await middle("#matrix");
  const { left, top, cell, queries, keys } = await dataset("matrix");
  const expectedSides = expectedMaps(map.sample, map.kind);
  same(`${queries} ${keys}`, `${expectedSides.queries.length} ${expectedSides.keys.length}`, "queries and keys of the matrix");
  for (const query of some(Number(queries))) {
    for (const key_ of new Set([0, Math.floor(query / 2), query, keys - 1].map((key_) => Math.min(key_, keys - 1)))) {
      const box = await value(`(() => { const { left, top } = document.getElementById("matrix").getBoundingClientRect(); return { left, top }; })()`);
      const [x, y] = [Number(left) + (key_ + 0.5) * cell, Number(top) + (query + 0.5) * cell];
      if (box.top + y < 0 || box.top + y > (await value("innerHeight"))) continue;
      await move(box.left + x, box.top + y);
      await checkReading(map, query, key_, "matrix");
    }
  }
}

/** Compares the highlight of every token with the weights of the token pointed at. */
async function exploreTokens({ sample, kind, layer, head }) {
  const { queries, keys, weight } = expectedMaps(sample, kind);
  const lit = kind === "cross" ? "lit" : "tokens";
  for (const direction of ["to", "by"]) {
    await press(radio("direction", direction));
    const [pointed, others] = direction === "to" ? [queries, keys] : [keys, queries];
    for (const position of some(pointed.length)) {
      await point(`#token-${position}`);
      same(await value(`document.querySelector('#tokens > [aria-selected="true"]').id`), `token-${position}`, "the token pointed at is selected");
      const tokens = await value(`Array.from(document.getElementById("${lit}").children, (token) => ({ ...token.dataset }))`);
      same(tokens.length, others.length, "tokens");
      tokens.forEach((token, other) => {
        const [query, key_] = direction === "to" ? [position, other] : [other, position];
        const wanted = weight(layer, head, query, key_);
        const label = `tokens, ${direction} ${position}, token ${other} of sample ${sample}, ${kind}, layer ${layer}, head ${head}`;
        same(token.token, others[other], label);
        check(token.weight === "" ? wanted === 0 : near(token.weight, wanted), `${label}: weight ${token.weight}, expected ${wanted}`);
      });
    }
  }
}

/** Visits the predictions of every sample, and the maps of some. */
export async function exploreSamples() {
  const kinds = ["decoder", "cross", "encoder"].filter((kind) => weightsOf(expected.views[0], kind).length > 0);
  for (const sample of expected.readings.keys()) {
    await choose("sample", sample);
    same(await value(`document.getElementById("predicted-sample").value`), String(sample), "both lists of samples agree");
    await explorePredictions(sample);
    if (await value(`document.getElementById("explorer").hidden`)) {
      check(sample > 0, "the first sample always has its maps");
      continue;
    }
    if (sample >= FIRST_SAMPLES && sample < expected.readings.length - 1) continue;
    for (const kind of kinds) {
      if (kinds.length > 1) await press(radio("kind", kind));
      if (kind !== "decoder") {
        const { layer, head } = await dataset("reading");
        same(head, String(expected.shown[kind][layer]), `the head of layer ${layer} that is selected first for ${kind}`);
      }
      for (const [layer, heads] of weightsOf(expected.views[sample], kind).entries()) {
        await press(radio("layer", layer));
        for (let head = 0; head < heads.length; head++) {
          await press(radio("head", head));
          await press(radio("view", "matrix"));
          await exploreMatrix({ sample, kind, layer, head });
          if (head === 0) {
            await press(radio("view", "tokens"));
            await exploreTokens({ sample, kind, layer, head });
          }
        }
      }
    }
  }
  if (kinds.length > 1) await press(radio("kind", "decoder"));
  await press(radio("view", "matrix"));
}

/** Checks the thumbnails and the table of all heads, sorted by every score. */
export async function exploreThumbnails() {
  await choose("sample", 0);
  const values = (score) => expected.heads.map((heads) => heads.map((head) => head[score]));
  const rows = await value(`new Set(Array.from(document.getElementById("thumbnails").children, (button) => button.offsetTop)).size`);
  same(rows, expected.heads.length || rows, "one row per layer");
  for (const score of scores) {
    await choose("sort", score);
    const found = await value(`Array.from(document.getElementById("thumbnails").children, ({ dataset }) => ({ ...dataset }))`);
    same(found.length, values(score).flat().length, `thumbnails by ${score}`);
    found.forEach(({ layer, head, value: shown }) => close(shown, values(score)[layer][head], `${score} of layer ${layer}, head ${head}`));
    const order = found.map(({ layer, head }) => values(score)[layer][head] ?? -Infinity);
    check(order.every((value, i) => i === 0 || order[i - 1] >= value), `thumbnails are not in the order of ${score}: ${order}`);
    await press("#thumbnails > button:last-child");
    const { layer, head } = await dataset("reading");
    same(`${layer} ${head}`, `${found.at(-1).layer} ${found.at(-1).head}`, `a click on the last thumbnail by ${score}`);
    same(await value(`document.querySelector('#thumbnails > [aria-pressed="true"]').dataset.head`), head, "the selected thumbnail is marked");
  }
  if (scores.length > 0) {
    await press("#score-table > summary");
    await choose("sort", "");
    for (const direction of ["descending", "ascending"]) {
      await press(`#scores button[data-score="${scores[0]}"]`);
      same(await value(`document.getElementById("sort").value`), scores[0], "a heading of the table sorts");
      same(await value(`document.querySelector("#scores [aria-sort$=ending]").ariaSort`), direction, "and a second click reverses the order");
      same(await value(`document.activeElement.dataset.score`), scores[0], "and keeps the focus");
      const order = (await value(`Array.from(document.getElementById("thumbnails").children, ({ dataset }) => dataset.value)`)).filter((text) => text !== "").map(Number);
      check(order.every((value, i) => i === 0 || (direction === "ascending" ? order[i - 1] <= value : order[i - 1] >= value)), `${direction}: ${order}`);
    }
    await press("#score-table > summary");
  }
}

/** Checks the lines of each query, and the weights of two heads side by side. */
export async function exploreComparisons() {
  await choose("sample", 0);
  const { attention } = expected.views[0];
  const [layer, head] = [attention.length - 1, attention.at(-1).length - 1];
  await press(radio("layer", layer));
  await press(radio("head", head));
  const { queries, weight } = expectedMaps(0, "decoder");
  await press(radio("view", "lines"));
  const isDrawn = queries.length <= 64;
  same(await value(`document.getElementById("lines-note").hidden`), isDrawn, "a note if the sequence is too long for lines");
  const lines = await value(`Array.from(document.querySelectorAll("#lines > g"), ({ dataset, children }) => [Number(dataset.query), Array.from(children, (line) => Number(line.dataset.key))])`);
  same(lines.length, isDrawn ? queries.length : 0, "a group of lines for each query");
  for (const [query, keys] of lines) {
    const weights = queries.map((_, key_) => weight(layer, head, query, key_) ?? 0);
    check(weights.every((number, key_) => (keys.includes(key_) ? number > 0.005 : number < 0.02)), `lines of query ${query}: ${keys}`);
  }
  if (isDrawn) {
    await value(`document.getElementById("lines").focus()`);
    await key("Home");
    same((await dataset("reading")).query, "0", "Home selects the first query");
    same(await value(`document.querySelector("#lines > g.chosen").dataset.query`), "0", "its lines are highlighted");
  }
  await press(radio("view", "matrix"));
  await press("#pair > summary");
  // The maps are drawn after the list of heads is filled.
  for (let i = 0; i < 100 && !(await value(`Boolean(document.querySelector("#pair-maps .frame canvas"))`)); i++) await new Promise((done) => setTimeout(done, 20));
  await choose("other-head", "0 0");
  await value(`document.getElementById("matrix").focus()`);
  for (const move_ of ["ArrowDown", "ArrowDown", "ArrowRight"]) await key(move_);
  const found = await dataset("pair-reading");
  const [first, second] = [[layer, head], [0, 0]].map((of) => weight(...of, Number(found.query), Number(found.key)));
  const isVisible = found.first !== "" && found.second !== "";
  if (isVisible) {
    check(near(found.first, first) && near(found.second, second), `weights of two heads: ${found.first} and ${found.second}, expected ${first} and ${second}`);
    check(first === null || second === null || Math.abs(Number(found.difference) - (first - second)) < 0.01, `their difference: ${found.difference}`);
  }
  same(await value(`document.querySelectorAll("#pair-maps .frame canvas").length`), 3, "two maps and their difference");
  await screenshot("pair");
  await press("#pair > summary");
}

/** Checks the colour scales, and the chance level of each score. */
export async function exploreScales() {
  const chances = await value(`Object.fromEntries(Array.from(document.querySelectorAll("#head-scores > dd"), ({ dataset }) => [dataset.score, dataset.chance]))`);
  const { layer } = await dataset("reading");
  for (const score of scores) close(chances[score], expected.chance[layer][score], `chance level of ${score}`);
  const images = () => value(`Array.from(document.querySelectorAll("#thumbnails canvas"), (canvas) => canvas.toDataURL()).join()`);
  const linear = await images();
  const isVaried = expectedMaps(0, "decoder").queries.length > 2;
  await press(radio("scale", "root"));
  check((await value(`document.getElementById("bar-of").textContent`)).includes("square root scale"), "the colour bar names the scale");
  check(!isVaried || (await images()) !== linear, "the square root scale changes the maps");
  await press(radio("scale", "head"));
  check((await value(`document.getElementById("bar-of").textContent`)).includes("scale of this head"), "the colour bar names the scale of a head");
  await press(radio("scale", "linear"));
  same(await images(), linear, "the linear scale is restored");
}
