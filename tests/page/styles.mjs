// Checks the texts of a page, its keyboard, its colours and its widths.

import { checkReading, expected, expectedMaps, headInWords, lossSteps, radio, scores } from "./expected.mjs";
import { check, choose, dataset, emulate, lowestContrast, page, press, same, screenshot } from "./hands.mjs";

const { value, key } = page;

/** Checks that every control works without a mouse. */
export async function exploreKeyboard() {
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
  same(await value(`document.getElementById("chosen").textContent`), await headInWords(first.layer, first.head), "Enter selects a thumbnail");
  await value(`document.querySelector('#views input[value="matrix"]').focus()`);
  await key("ArrowRight");
  same(await value(`document.getElementById("tokens-view").hidden`), false, "arrow keys change the view");
  await focus("tokens");
  await key("Home");
  same(await value(`document.querySelector('#tokens > [aria-selected="true"]').dataset.index`), "0", "Home reaches the first token");
  await press(radio("view", "matrix"));
}

/** Checks that the page shows its data, as text and never as markup. */
export async function exploreTexts() {
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
    same(await value(`document.getElementById("chosen").textContent`), await headInWords(layer, expected.shown.decoder[layer]), "the head that is selected first");
  }
  same(await value("document.scripts.length"), 2, "scripts");
  same(await value("document.images.length"), 0, "images");
  same(await value(`Object.keys(window).filter((name) => ["data", "state", "update"].includes(name)).length`), 0, "globals");
}

/** Checks colours and widths. */
export async function exploreStyles() {
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
