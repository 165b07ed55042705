// Explores a report.html as a user would, and compares its contents with the run's data.
//
//     node tests/page/explore.mjs CHROMIUM REPORT.html EXPECTED.json
//
// EXPECTED.json is the `Page` that the report was written from, as serialised by serde. The script reads `run`,
// `config`, `summary`; `loss` with `training`, `validation`, `learning_rate` (lists of `{step, value}`), `floor` and
// `diverged`; `readings`, each with `sequence`, `source`, `inputs` (texts), `targets` (`{text, probability, role}` or
// null) and `most_likely` (lists of `{token, probability}`); `views`, each with `attention`, `cross` and `encoder`
// (`[layer][head]`, each `[query, key]` in row-major order); `chance` (`[layer]`, by score key); `heads` (`[layer][head]`, each
// with its values by score key), `shown` (by kind, the head of each layer that is selected first), `history` (`{step,
// heads}`).
//
// Reads the predictions of every sample, and visits every layer and head of the first two samples and the last one
// by clicks; sorts thumbnails by every score; points at cells, tokens, predictions and curves with mouse and keyboard;
// checks light and dark, print, and the widths of a screen and of a phone. Roots of weights must agree to within half a
// step of 8 bits, and all other numbers to seven digits.
//
// Exits with code 0 and one line that counts the checks, or with code 1 and a line per failure. Failures include
// every warning or error on the console, every exception and dialog, and every request other than for a file or data.
// SCREENSHOTS=FOLDER saves screenshots of the page there.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, choose, dataset, emulate, explore, lowestContrast, middle, page, point, press, same, screenshot } from "./hands.mjs";

const [report, expectedPath] = process.argv.slice(3);
const expected = JSON.parse(readFileSync(expectedPath, "utf8"));
/** The scores that are known for at least one head. */
const scores = Object.keys(expected.heads[0]?.[0] ?? {}).filter((score) => expected.heads.flat().some((head) => head[score] !== null));
/** The number of first samples whose maps are explored, in addition to the last sample. */
const FIRST_SAMPLES = 2;

/** Checks that two numbers agree to about seven digits; both may be missing. */
function close(found, wanted, what) {
  if (wanted === null || wanted === undefined) return check(found === "" || found === undefined || found === "null", `${what}: found ${found}, expected none`);
  check(found !== "" && found !== undefined && Math.abs(Number(found) - wanted) <= 1e-6 * Math.abs(wanted) + 1e-12, `${what}: found ${found}, expected ${wanted}`);
}

const { value, move, click, key } = page;
const radio = (name, option) => `label:has(> input[name="${name}"][value="${option}"])`;

/** Returns positions to point at: both ends and some positions in between. */
const some = (length) => [...new Set([0, 1, Math.floor(length / 3), Math.floor((2 * length) / 3), length - 1])].filter((i) => i >= 0 && i < length);

const weightsOf = ({ attention, cross, encoder }, kind) => ({ decoder: attention, cross, encoder })[kind];
/** Returns the query and key tokens of a kind of attention, and a function for the weight between two of them. */
function expectedMaps(sample, kind) {
  const { inputs, source } = expected.readings[sample];
  const [queries, keys] = { decoder: [inputs, inputs], cross: [inputs, source], encoder: [source, source] }[kind];
  const weights = weightsOf(expected.views[sample], kind);
  return { queries, keys, weight: (layer, head, query, key) => weights[layer][head][query * keys.length + key] };
}
/** Returns true if a weight agrees to the precision of a byte; JSON encodes NaN as null. */
const near = (found, wanted) => found !== "" && (wanted === null ? found === "NaN" : Math.abs(Math.sqrt(Number(found)) - Math.sqrt(wanted)) <= 0.501 / 254);

/** Checks the reading of a cell. */
async function checkReading({ sample, kind, layer, head }, query, key_, what) {
  const found = await dataset("reading");
  const { queries, keys, weight } = expectedMaps(sample, kind);
  const label = `${what} of sample ${sample}, ${kind}, layer ${layer}, head ${head}, query ${query}, key ${key_}`;
  for (const [name, wanted] of Object.entries({ sample, kind, layer, head, query, key: key_ })) same(found[name], String(wanted), `${label}: ${name}`);
  same(found.queryToken, queries[query], `${label}: query token`);
  same(found.keyToken, keys[key_], `${label}: key token`);
  const wanted = weight(layer, head, query, key_);
  if (kind === "decoder" && key_ > query && found.weight === "") return same(wanted, 0, `${label}: a key that is not visible`);
  check(near(found.weight, wanted), `${label}: weight ${found.weight}, expected ${wanted}`);
}

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

async function explorePredictions(sample) {
  const { inputs, targets, most_likely } = expected.readings[sample];
  const cells = await value(`Array.from(document.getElementById("predictions").children, (cell) => cell.className)`);
  same(cells.length, targets.length, `predictions of sample ${sample}`);
  cells.forEach((kind, position) => {
    const target = targets[position];
    const wanted = target === null ? "open" : target.role === "undetermined" ? "unknowable" : most_likely[position][0]?.token === target.text ? "hit" : "miss";
    same(kind, wanted, `prediction ${position} of sample ${sample}`);
  });
  const count = await value(`document.getElementById("predictions-count").textContent`);
  if (targets.every((target) => target === null || target.role === "unknown")) check(!count.includes("known"), `the roles of targets are unknown, but the page shows: ${count}`);
  for (const position of some(targets.length)) {
    await point(`#prediction-${position}`);
    const found = await dataset("prediction");
    const [target, probable] = [targets[position], most_likely[position]];
    const label = `prediction ${position} of sample ${sample}`;
    same(found.position, String(position), label);
    same(found.after, inputs[position], `${label}: after`);
    same(found.truth, target?.text ?? "", `${label}: truth`);
    close(found.truthProbability, target?.probability, `${label}: probability of the truth`);
    same(found.predicted, probable[0]?.token ?? "", `${label}: predicted`);
    close(found.probability, probable[0]?.probability, `${label}: probability`);
  }
}

async function exploreSamples() {
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

async function exploreThumbnails() {
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
async function exploreComparisons() {
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
async function exploreScales() {
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

/** Checks both charts by pointing at steps along their shared time axis. */
async function exploreCharts() {
  const loss = expected.loss;
  if (loss.floor !== null) close((await dataset("floor")).value, loss.floor, "floor");
  const series = { training: loss.training, objective: loss.objective ?? [], validation: loss.validation, learningRate: loss.learning_rate };
  const box = await middle("#loss-chart");
  const [seen, read] = [new Set(), new Set()];
  for (let i = 1; i < 24; i++) {
    await move(box.left + 68 + ((box.width - 126) * i) / 24, box.top + box.height / 2);
    const found = await dataset("loss-reading");
    if (found.step === undefined) break;
    seen.add(found.step);
    for (const [name, points] of Object.entries(series)) {
      if (found[name] === undefined) continue;
      read.add(name);
      close(found[name], points.find(({ step }) => step === Number(found.step))?.value, `${name} at step ${found.step}`);
    }
  }
  check(seen.size > 1 || loss.training.length < 3, `pointing at the loss chart reads steps: ${[...seen]}`);
  check(read.has("objective") === (loss.objective ?? []).length > 0, `the objective is read if the run has one: ${[...read]}`);
  if (loss.diverged) same((await dataset("diverged")).step, String(loss.diverged), "the step at which the run diverged");
  const note = await value(`document.getElementById("weights-note").hidden ? "" : document.getElementById("weights-note").textContent`);
  if (loss.diverged) check(note.includes(`diverged at step ${loss.diverged.toLocaleString("en-US")}`), `the page names the step: ${note}`);
  check(note.includes(loss.weights ?? ""), `the page names the weights that it shows: ${note}`);
  if (expected.history.length === 0) return;
  const known = scores.filter((score) => expected.history.some(({ heads }) => heads.flat().some((head) => head[score] !== null)));
  for (const score of known) {
    await choose("score", score);
    const chart = await middle("#history-chart");
    for (let i = 1; i < 8; i++) {
      await move(chart.left + 68 + ((chart.width - 126) * i) / 8, chart.top + 20 + ((chart.height - 70) * i) / 8);
      const { step, layer, head, value: shown } = await dataset("history-reading");
      const scored = expected.history.find((scored) => scored.step === Number(step));
      check(scored !== undefined, `${score}: step ${step} was not scored`);
      close(shown, scored?.heads[layer][head][score], `${score} of layer ${layer}, head ${head} at step ${step}`);
    }
    const { layer, head } = await dataset("history-reading");
    await click(chart.left + 68 + ((chart.width - 126) * 7) / 8, chart.top + 20 + ((chart.height - 70) * 7) / 8);
    const chosen = await value(`document.getElementById("chosen").textContent`);
    same(chosen, `layer ${layer}, head ${head}`, `a click on a curve of ${score} chooses its head`);
  }
}

/** Checks that the film shows each of its steps in all panels, and ends with the weights of the page. */
async function exploreFilm() {
  if (await value(`document.getElementById("film").hidden`)) return;
  await choose("sample", expected.sample);
  const frames = await value(`Array.from(document.getElementById("film-strip").children, ({ dataset, textContent }) => ({ ...dataset, name: textContent }))`);
  check(frames.length > 2 && frames[0].name === "step 0" && frames.at(-1).name === "end", `steps of the film: ${frames.map(({ name }) => name)}`);
  same((await dataset("film-reading")).frame, String(frames.length - 1), "the film is at its end");
  const [slider, map] = [await middle("#film-step"), await value(`document.getElementById("bar").getBoundingClientRect().bottom`)];
  check(slider.top > map && slider.top - map < 250, `the slider of the film is ${slider.top - map} pixels below the map that it moves`);
  for (const { frame, sample, name } of frames) {
    await press(`#film-strip > [data-frame="${frame}"]`);
    same((await dataset("reading")).sample, sample, `the explorer shows ${name}`);
    same(await value(`document.getElementById("film-step").value`), frame, `the slider is at ${name}`);
    same(await value(`document.getElementById("predictions").children.length`), expected.readings[expected.sample].inputs.length, `predictions at ${name}`);
  }
  const steps = lossSteps(expected.loss);
  if (steps.length > 0) same((await dataset("loss-reading")).step, String(Math.max(...steps)), "the end of the film is the last step of the curves");
  const images = await value(`Array.from(document.querySelectorAll("#film-strip canvas"), (canvas) => canvas.toDataURL())`);
  // The map at the end may be computed by the model; the other one is stored in bytes.
  const change = await value(`(() => {
    const [before, end] = Array.from(document.querySelectorAll("#film-strip canvas")).slice(-2).map((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
    return before.length === end.length ? before.reduce((most, value, i) => Math.max(most, Math.abs(value - end[i])), 0) : Infinity;
  })()`);
  const best = expected.summary.find(([name]) => name === "best step")?.[1];
  if (frames.at(-2).name === `step ${best}`) check(change <= 16, `the map of the best step equals the map of the best weights: colours differ by ${change}`);
  check(new Set(images).size > 1, "maps change during the run");
  await value(`document.getElementById("film-step").focus()`);
  await key("ArrowLeft");
  same((await dataset("film-reading")).frame, String(frames.length - 2), "arrow keys move the film");
  await choose("sample", 0);
}

/** Checks that every control works without a mouse. */
async function exploreKeyboard() {
  await choose("sample", 0);
  await press(radio("view", "matrix"));
  const focus = (id) => value(`document.getElementById("${id}").focus()`);
  const time = Number((await dataset("matrix")).queries);
  await focus("matrix");
  for (let i = 0; i < time; i++) await key("ArrowUp");
  for (let i = 0; i < time; i++) await key("ArrowLeft");
  const { kind, layer, head } = await dataset("reading");
  const map = { sample: 0, kind, layer: Number(layer), head: Number(head) };
  await checkReading(map, 0, 0, "arrow keys");
  if (time > 1) {
    await key("ArrowDown");
    await checkReading(map, 1, 0, "arrow keys");
    await key("ArrowRight");
    await checkReading(map, 1, 1, "arrow keys");
  }
  await focus("predictions");
  await key("End");
  const { targets } = expected.readings[0];
  if (targets.length > 0) same((await dataset("prediction")).position, String(targets.length - 1), "End reaches the last prediction");
  await focus("loss-chart");
  await key("Home");
  const { step } = await dataset("loss-reading");
  const steps = lossSteps(expected.loss);
  if (steps.length > 0) same(step, String(Math.min(...steps)), "Home reaches the first step");
  await value(`document.querySelector('#thumbnails > [tabindex="0"]').focus()`);
  await key("Home");
  await key("Enter");
  const first = await value(`({ ...document.querySelector("#thumbnails > button").dataset })`);
  same(await value(`document.getElementById("chosen").textContent`), `layer ${first.layer}, head ${first.head}`, "Enter selects a thumbnail");
  await value(`document.querySelector('#views input[value="matrix"]').focus()`);
  await key("ArrowRight");
  same(await value(`document.getElementById("tokens-view").hidden`), false, "arrow keys change the view");
  await focus("tokens");
  await key("Home");
  same(await value(`document.querySelector('#tokens > [aria-selected="true"]').dataset.index`), "0", "Home reaches the first token");
  await press(radio("view", "matrix"));
}
const lossSteps = ({ training, validation, learning_rate }) => [...training, ...validation, ...learning_rate].map(({ step }) => step);

/** Checks that the page shows its data, as text and never as markup. */
async function exploreTexts() {
  same(await value(`document.getElementById("run").textContent`), expected.run, "the run's name");
  same(await value("document.title"), expected.run.trim().replace(/\s+/g, " "), "the title");
  same(await value(`document.getElementById("config").textContent`), expected.config, "the config");
  const measured = await value(`document.getElementById("scores-of").checkVisibility() ? document.getElementById("scores-of").textContent : ""`);
  same(measured, scores.length > 0 ? `Scores on ${expected.measured_on}, not on your input:` : "", "the data of the scores of a head");
  const rows = await value(`Array.from(document.querySelectorAll("#summary > div"), (row) => Array.from(row.children, (cell) => cell.textContent))`);
  same(JSON.stringify(rows), JSON.stringify(expected.summary), "the summary");
  if (expected.heads.length > 0) {
    const effects = expected.shown.decoder.map((head, layer) => expected.heads[layer][head].zero_ablation ?? -Infinity);
    const layer = effects.lastIndexOf(Math.max(...effects));
    same(await value(`document.getElementById("chosen").textContent`), `layer ${layer}, head ${expected.shown.decoder[layer]}`, "the head that is selected first");
  }
  same(await value("document.scripts.length"), 2, "scripts");
  same(await value("document.images.length"), 0, "images");
  same(await value(`Object.keys(window).filter((name) => ["data", "state", "update"].includes(name)).length`), 0, "globals");
}

/** Checks colours and widths. */
async function exploreStyles() {
  for (const scheme of ["light", "dark", "forced"]) {
    await emulate(scheme);
    await exploreContrast(scheme);
    await screenshot(scheme);
  }
  await page.send("Emulation.setEmulatedMedia", { media: "print" });
  const [side, matrix] = await value(`["side", "stage"].map((id) => { const { left, right, top, bottom } = document.getElementById(id).getBoundingClientRect(); return { left, right, top, bottom }; })`);
  check(side.top >= matrix.bottom || side.left >= matrix.right, "in print, the side panel covers the matrix");
  await screenshot("print");
  await emulate("usual");
  const wide = await value(`document.documentElement.scrollWidth - innerWidth`);
  check(wide <= 0, `the page is ${wide} pixels wider than the window`);
  const background = () => value(`getComputedStyle(document.body).backgroundColor`);
  const backgrounds = {};
  for (const theme of ["light", "dark"]) {
    await emulate(theme);
    backgrounds[theme] = await background();
  }
  check(backgrounds.light !== backgrounds.dark, "light and dark look the same");
  await press("#theme");
  same(await background(), backgrounds.light, "the button sets light on a dark system");
  await press("#theme");
  await press("#theme");
  same(await background(), backgrounds.dark, "and back");
  await emulate("usual");
  await page.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true });
  for (const view of ["tokens", "matrix"]) {
    await press(radio("view", view));
    const { over, width } = await value(`({ over: document.documentElement.scrollWidth, width: innerWidth })`);
    check(width === 360 && over <= width, `at 360 pixels the page is ${over} wide in a window of ${width} (${view})`);
    const outside = await value(`Array.from(document.querySelectorAll("#${view}, svg, select, .choice"), (part) => part.id + " " + Math.round(part.getBoundingClientRect().right)).filter((text) => Number(text.split(" ")[1]) > 360)`);
    check((await value(`document.getElementById("stage").clientWidth`)) >= 300, "at 360 pixels the explorer is squeezed");
    check(outside.length === 0, `at 360 pixels these elements exceed the window: ${outside}`);
  }
  await screenshot("phone");
}

/** Checks the contrast of tokens and curves with their backgrounds, and that the colours of weights differ. */
async function exploreContrast(scheme) {
  await press(radio("view", "tokens"));
  const [tokens, lines] = [await lowestContrast(".token", "color"), await lowestContrast("#history-chart .curve", "stroke")];
  check(tokens >= 4.5, `tokens have a contrast of ${tokens} (${scheme})`);
  check(lines >= 3, `lines of heads have a contrast of ${lines} (${scheme})`);
  const colors = await value(`new Set(Array.from(document.getElementById("tokens").children, (token) => getComputedStyle(token).backgroundColor)).size`);
  const { queries } = expectedMaps(0, "decoder");
  check(colors > 1 || queries.length < 3, `tokens of all weights look the same (${scheme})`);
  const decorated = await value(`Array.from(document.querySelectorAll("#predictions *, .token"), (token) => getComputedStyle(token).textDecorationLine).filter((line) => line !== "none").length`);
  same(decorated, 0, "tokens with a strike-through or underline, which could be mistaken for punctuation");
  const marked = await value(`[":checked", ":not(:checked)"].map((state) => getComputedStyle(document.querySelector('#views input' + state + ' + span')).backgroundColor)`);
  check(marked[0] !== marked[1], `selected and unselected options look the same (${scheme})`);
  await press(radio("view", "matrix"));
}

await explore(report, [
  () => page.open(pathToFileURL(resolve(report)).href),
  exploreTexts, exploreCharts, exploreSamples, exploreThumbnails, exploreScales, exploreComparisons, exploreFilm, exploreKeyboard, exploreStyles,
]);
