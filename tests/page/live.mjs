// Types into the live part of a report.html, switches heads off, generates text and undoes it all.
//
//     node tests/page/live.mjs CHROMIUM REPORT.html INPUT.json
//
// INPUT.json is `{text, source, source_tokens, tokens, texts, unknown, probabilities, has_tour}`: the input as typed;
// its source and the ids of the source, or null; the ids of the input, and their texts in the page; a symbol that is
// not in the vocabulary; the program's probabilities for the token after the input; and true if the analysis of the run
// found a head for the tour. Exits like explore.mjs.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { addressWritten, check, choose, dataset, emulate, explore, lowestContrast, middle, page, point, press, same, screenshot, settled, text, type, until } from "./hands.mjs";
import { followWriting, isEverywhere } from "./points.mjs";

const [report, wantedPath] = process.argv.slice(3);
const wanted = JSON.parse(readFileSync(wantedPath, "utf8"));
const address = pathToFileURL(resolve(report)).href;
const { value, key, click } = page;

const slide = (id, number) => type(String(number), id);
const chips = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => Number(dataset.id))`);
/** Returns the displayed next tokens with their probabilities, most likely first. */
const candidates = () => value(`Array.from(document.getElementById("candidates").children, ({ dataset }) => [Number(dataset.id), Number(dataset.probability)])`);
const lossNow = async () => Number((await dataset("input-loss")).loss);
/** Types the input and waits for its answer. */
async function begin() {
  if (wanted.source !== null) await type(wanted.source, "input-source");
  await type(wanted.text);
  await until(`document.getElementById("predictions").children.length === ${wanted.tokens.length}`, "an answer to the typed text");
  await until(`document.getElementById("sample").selectedOptions[0]?.textContent === "your input"`, "panels show the typed text");
}
const list = (numbers) => JSON.stringify(numbers);

async function exploreTyping() {
  await begin();
  same(list(await chips()), list(wanted.tokens), "one chip per token");
  const shown = await value(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => dataset.token)`);
  same(list(shown), list(wanted.texts), "chips hold the texts of the vocabulary");
  same((await dataset("matrix")).queries, String(wanted.tokens.length), "the map shows the typed text");
  same((await dataset("reading")).query, String(wanted.tokens.length - 1), "and its last token is selected");
  const found = await candidates();
  check(found.length > 0 && found.every(([, p], i) => i === 0 || found[i - 1][1] >= p), `the most likely first: ${found}`);
  for (const [id, probability] of found) {
    check(Math.abs(probability - wanted.probabilities[id]) < 1e-4, `token ${id} follows with ${probability}, by the program with ${wanted.probabilities[id]}`);
  }
  await type(`${wanted.text} ${wanted.unknown}`);
  await until(`document.querySelector("#chips > .unknown")`, "an unknown symbol is marked");
  check((await text("input-note")).includes(wanted.unknown.trim()), "and named");
  same(await value(`document.images.length + document.scripts.length`), 2, "typed text never becomes markup");
  await type(wanted.text);
  await type("", wanted.source === null ? "input-text" : "input-source");
  const refused = wanted.source === null ? "the input is empty" : "an encoder-decoder needs a source";
  await until(`document.getElementById("input-note").textContent.includes("${refused}")`, "missing input is reported");
  // Every intermediate text is answered or skipped, but the last one is always answered.
  const parts = Array.from({ length: wanted.text.length }, (_, i) => wanted.text.slice(0, i + 1));
  for (const part of parts) await type(part);
  await begin();
  same(list((await candidates()).map(([id]) => id)), list(found.map(([id]) => id)), "after fast typing, the last text is answered");
}

async function exploreHeads() {
  const [before, loss] = [await candidates(), await lossNow()];
  await press("#switch-off");
  await until(`document.getElementById("changes").children.length === 1 && Math.abs(Number(document.getElementById("input-loss").dataset.loss) - ${loss}) > 1e-6`, "without the head, the loss changes");
  const without = await candidates();
  check(list(without) !== list(before), "and so are the probabilities");
  same(await value(`document.getElementById("switch-off").ariaPressed`), "true", "the switch is pressed");
  check((await text("changes")).includes("output replaced by its mean over"), `the ablation is named: ${await text("changes")}`);
  same(await value(`document.querySelectorAll("#thumbnails > .changed").length`), 1, "the head is marked");
  await press("#difference");
  check((await text("bar-of")).includes("change"), "the colour bar names differences");
  await addressWritten();
  const link = await value("location.hash");
  check(link.includes("ablated=") && link.endsWith("_1"), `the link holds the state: ${link}`);
  await page.send("Page.navigate", { url: "about:blank" });
  await page.open(address + link);
  await until(`document.getElementById("changes").children.length === 1`, "the address restores the change");
  same(list(await chips()), list(wanted.tokens), "and the tokens");
  same(list(await candidates()), list(without), "and the answer");
  same(await value(`document.getElementById("difference").checked`), true, "and the view");
  await page.send("Page.navigate", { url: "about:blank" });
  await page.open(`${address}#tokens=0.999999999&head=decoder_77`);
  check((await text("input-note")).includes("does not match the model of this page"), "an address that does not fit is reported");

  await begin();
  await press("#switch-off");
  await until(`document.getElementById("changes").children.length === 1`, "off again");
  await press("#undo");
  await until(`document.getElementById("changes").children.length === 0 && Math.abs(Number(document.getElementById("input-loss").dataset.loss) - ${loss}) < 1e-9`, "undone");
  same(list(await candidates()), list(before), "as before");

  await press("#here-only");
  await slide("strength", 0.5);
  await until(`document.querySelector("#changes > li")?.textContent.includes("at strength 0.50 for the query at position ${wanted.tokens.length - 1}")`, "half as strong at one query");
  await until(wanted.has_tour ? `document.getElementById("effect").textContent.includes(" changes from ")` : `!document.getElementById("effect").hidden`, "the largest change is shown");
  await press("#restore");
  await until(`document.getElementById("changes").children.length === 0`, "as trained");
  await press("#here-only");
  await press("#freeze");
  await until(`document.querySelector("#changes > li")?.textContent.includes("pattern frozen")`, "a pattern is frozen");
  await until(`Math.abs(Number(document.getElementById("input-loss").dataset.loss) - ${loss}) < 1e-4`, "on the same tokens, this changes nothing");
  await press("#changes button");
  await until(`document.getElementById("changes").children.length === 0`, "and unfrozen by its own button");
}

/** Checks that every panel shows the selected position, however it is selected. */
async function explorePosition() {
  const last = wanted.tokens.length - 1;
  await isEverywhere(last, "typing");
  await press("#chip-1");
  await isEverywhere(1, "a click on a token");
  const next = await candidates();
  const asked = await value(`window.model.forward(${wanted.source === null ? list(wanted.tokens) : `${list(wanted.source_tokens)}, ${list(wanted.tokens)}`}).then(({ probabilities }) => probabilities[1])`);
  check(next.every(([id, probability]) => Math.abs(probability - asked[id]) < 1e-4), "the next tokens are those after the selected position");
  await key("ArrowRight");
  await isEverywhere(Math.min(2, last), "an arrow key");
  await press("#prediction-0");
  await isEverywhere(0, "a click on a prediction");
  const { left: x, top: y, cell } = await dataset("matrix");
  const inMatrix = async (query) => {
    const { left, top } = await middle("#matrix");
    return [left + Number(x) + 0.5 * cell, top + Number(y) + (query + 0.5) * cell];
  };
  await click(...(await inMatrix(2)));
  await isEverywhere(2, "a click on the map");
  // Another cell under the pointer is a preview, which ends when the pointer leaves.
  await page.move(...(await inMatrix(1)));
  same((await dataset("reading")).query, "1", "the cell under the pointer is read");
  same((await dataset("candidates-after")).position, "2", "but not selected");
  await point("#weight-close");
  await isEverywhere(2, "after the pointer has left");
  await press("#weight-close");
  await value(`document.getElementById("matrix").focus()`);
  await key("ArrowDown");
  await isEverywhere(Math.min(3, last), "an arrow key in the map");
  await press("#chip-1");
  const [chosen] = (await candidates()).find(([id]) => id !== wanted.tokens[2]);
  await press(`#candidates > [data-id="${chosen}"] button`);
  await until(`document.querySelectorAll("#chips > [data-index]").length === 3`, "a next token replaces the tokens after the position");
  same(list(await chips()), list([...wanted.tokens.slice(0, 2), chosen]), "and continues the input");
  await isEverywhere(2, "the new token");
  await press("#undo");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${wanted.tokens.length}`, "undo restores the tokens");
  await begin();
}

/** Checks that input, map and next tokens are visible together on a small laptop. */
async function exploreScreen() {
  await page.send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false });
  await fitsScreen("the input");
  if (wanted.source !== null) {
    // A longer source and answer, with the map between them.
    const long = Array(10).fill(wanted.source.split(" ")[0]).join(" ");
    await type(long, "input-source");
    await type(long);
    await until(`document.getElementById("predictions").children.length === 11`, "an answer to the long input");
    for (const kind of ["encoder", "cross", "decoder"]) {
      await press(`label:has(> input[name="kind"][value="${kind}"])`);
      await fitsScreen(`a long input, ${kind}`);
    }
    await begin();
  }
  await page.send("Emulation.setDeviceMetricsOverride", { width: 1200, height: 1000, deviceScaleFactor: 1, mobile: false });
}

async function fitsScreen(what) {
  await settled();
  const boxes = await value(`(() => {
    document.getElementById("input-area").scrollIntoView();
    return Object.fromEntries(["input-text", "chips", "matrix", "candidates", "reading"].map((id) => [id, document.getElementById(id).getBoundingClientRect().toJSON()]));
  })()`);
  for (const [id, { top, bottom }] of Object.entries(boxes)) check(top >= 0 && bottom <= 800, `${what}: #${id} is outside the screen: ${top} to ${bottom}`);
}

/** Checks that the list of changes names a head in one way, however it is changed. */
async function exploreNames() {
  if (wanted.source === null) return;
  for (const kind of ["decoder", "cross"]) {
    await press(`label:has(> input[name="kind"][value="${kind}"])`);
    const names = [];
    for (const by of ["stored", "zero"]) {
      await choose("ablate-head-by", by);
      await press("#switch-off");
      await until(`document.querySelectorAll("#changes > li").length === 1`, `${kind} head ablated by ${by}`);
      names.push((await value(`document.querySelector("#changes > li").textContent`)).split(/:| zero-ablated/)[0]);
      await press("#restore");
      await until(`document.getElementById("changes").children.length === 0`, "restored");
    }
    same(names[0], names[1], `the name of an ablated head`);
    check(names[0].startsWith(kind === "cross" ? "cross-attention, layer " : "decoder self-attention, layer "), `a head is named with its kind of attention: ${names[0]}`);
  }
  await choose("ablate-head-by", "stored");
  await press(`label:has(> input[name="kind"][value="decoder"])`);
  await begin();
}

async function exploreExchange() {
  await press("#chip-1");
  same((await dataset("prediction")).position, "1", "a pressed chip selects its prediction");
  const other = wanted.texts.find((_, i) => wanted.tokens[i] !== wanted.tokens[1]);
  const id = wanted.tokens[wanted.texts.indexOf(other)];
  await type(other, "replacement");
  await press("#replace button");
  await until(`document.querySelector("#changes > li")?.textContent.includes("instead of")`, "one token is replaced");
  same(list(await chips()), list(wanted.tokens.with(1, id)), "at its position");
  await until(`document.getElementById("input-loss").textContent.includes("before the change")`, "the loss is compared");
  await press("#restore");
  await until(`document.getElementById("changes").children.length === 0`, "and restored");
  same(list(await chips()), list(wanted.tokens), "all tokens are as they were");
  await value(`document.getElementById("chips").focus()`);
  await key("Home");
  same(await value(`document.querySelector('#chips > [aria-selected="true"]').id`), "chip-0", "keys select chips");
  await press("#chip-1");
  await press("#end-here");
  await until(`document.querySelectorAll("#chips > [data-index]").length === 2`, "the input ends at a chip");
}

async function exploreGenerating() {
  await begin();
  const [[most_likely]] = await candidates();
  await slide("temperature", 0);
  same(list((await candidates())[0]), list([most_likely, 1]), "at temperature 0 the most likely token has probability 1");
  await press("#one-token");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${wanted.tokens.length + 1}`, "one more token");
  same((await chips()).at(-1), most_likely, "the most likely token");
  await slide("temperature", 1);
  await slide("top-k", 2);
  same((await candidates()).filter(([, p]) => p > 0).length, 2, "top-k keeps two tokens");
  await slide("top-k", 0);
  await until(`document.querySelectorAll("#predictions > *").length === document.querySelectorAll("#chips > [data-index]:not(.forgotten)").length`, "the panels follow");
  const second = (await candidates())[1][0];
  await press("#candidates > li:nth-child(2) button");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${wanted.tokens.length + 2}`, "another candidate is taken");
  same((await chips()).at(-1), second, "the token that was pressed");
  await press("#generate-toggle");
  await until(`document.querySelectorAll("#chips > [data-index]").length > ${wanted.tokens.length + 2}`, "generation runs");
  await followWriting();
  await press("#undo");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${wanted.tokens.length + 2}`, "generated tokens are undone in one step");
}

async function exploreExplanations() {
  await value(`document.querySelector("#try .term").focus()`);
  check(!(await value(`document.getElementById("definition").hidden`)), "a term shows its definition");
  await value(`document.getElementById("theme").focus()`);
  check(await value(`document.getElementById("definition").hidden`), "and hides it");
  await press("#explanations");
  const left = await value(`Array.from(document.querySelectorAll(".explain")).filter((line) => line.offsetHeight > 0).length`);
  same(left, 0, "explanations still shown after they are switched off");
  await press("#explanations");
  check((await text("help")).includes("model.zeroHead(layer, head)"), "the help describes window.model");
}

/** Checks the scripting interface, `window.model`. */
async function exploreScripts() {
  const given = wanted.source === null ? list(wanted.tokens) : `${list(wanted.source_tokens)}, ${list(wanted.tokens)}`;
  const ask = `window.model.forward(${given})`;
  const time = wanted.tokens.length;
  const last = await value(`${ask}.then(({ probabilities }) => probabilities.at(-1))`);
  check(last.every((p, id) => Math.abs(p - wanted.probabilities[id]) < 1e-4), "window.model gives the program's probabilities");
  same(await value(`${ask}.then(({ logits, weights }) => [logits.length, weights.length, weights[0][0].length, weights[1][1][${time - 1}].length].join())`), [time, 2, time, time].join(), "and logits and weights by layer, head, query and key");
  const sum = await value(`${ask}.then(({ weights }) => weights[1][0][1].reduce((sum, weight) => sum + weight, 0))`);
  check(Math.abs(sum - 1) < 1e-5, `the weights of a query sum to ${sum}`);
  const logits = () => value(`${ask}.then(({ logits }) => JSON.stringify(logits))`);
  const plain = await logits();
  await value("window.model.zeroHead(1, 0)");
  check((await logits()) !== plain, "zeroHead ablates a head");
  await value("window.model.restore()");
  same(await logits(), plain, "restore brings it back");
  for (const [asked, expected] of [["forward([999999])", "contains 999999 at index 0"], ["forward()", "is empty"], ["zeroHead(0, 99)", "unknown head: layer 0, head 99"]]) {
    const reply = await value(`(async () => window.model.${asked})().then(() => "nothing", String)`);
    check(reply.includes(expected), `${asked} is refused with a reason: ${reply}`);
  }
}

async function exploreTour() {
  same(await value(`!document.getElementById("tour-begin").hidden`), wanted.has_tour, "a tour if the analysis found a head");
  if (!wanted.has_tour) return;
  await press("#tour-begin");
  for (let step = 1; step <= 5; step++) {
    await until(`document.getElementById("tour-step").textContent === "Step ${step} of 5"`, `step ${step}`);
    await settled();
    if (step === 1) {
      const [, position] = (await text("tour-text")).match(/at position (\d+)/);
      same((await dataset("candidates-after")).position, position, "the next tokens are those after the tour's position");
    }
    if (step === 2 || step === 5) {
      const chosen = (await value(`document.querySelectorAll("#chips > [data-index]").length`)) - step;
      await press(`#chip-${chosen}`);
      await isEverywhere(chosen, "a token chosen during the tour");
    }
    if (step === 3) {
      await until(`document.getElementById("changes").textContent.includes("replaced by its mean")`, "the tour ablates the head as the circuit does");
      const [, after] = (await text("tour-text")).match(/the loss on this input from [\d.]+ to (\d+\.\d+)/);
      await until(`Math.abs(Number(document.getElementById("input-loss").dataset.loss) - ${after}) < 0.0051`, "and the panels agree with its text");
      await screenshot("tour");
    }
    await press("#tour-next");
  }
  check(await value(`document.getElementById("tour").hidden`), "the tour ends");
}

async function exploreStyles() {
  for (const scheme of ["light", "dark"]) {
    await emulate(scheme);
    const lowest = Math.min(await lowestContrast("#try .token, #try label, .explain, .term, #changes li", "color"));
    check(lowest >= 4.5, `text of the live part has a contrast of ${lowest} (${scheme})`);
    await screenshot(`live-${scheme}`);
  }
  await page.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true });
  await until(`document.documentElement.scrollWidth <= 360`, "at 360 pixels the page fits the window");
  await screenshot("live-phone");
}

await explore(report, [
  () => page.open(address),
  exploreTyping, explorePosition, exploreScreen, exploreNames, exploreHeads, exploreExchange, exploreGenerating, exploreExplanations, exploreScripts, exploreTour, exploreStyles,
]);
