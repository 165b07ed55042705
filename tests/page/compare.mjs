// Explores the page of a comparison as a user would, and compares its contents with `compare --json`.
//
//     node tests/page/compare.mjs CHROMIUM FOLDER EXPECTED
//
// FOLDER is the output folder of `compare --out`, EXPECTED the JSON. Sorts and chooses rows, clicks dots, changes the
// axis and the score; checks light, dark and forced colours and the width of a phone.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { SCHEMES, check, choose, dataset, emulate, explore, lowestContrast, page, press, same, screenshot } from "./hands.mjs";
import { rowsOf, savePanels } from "./panels.mjs";

const [folder, expected] = process.argv.slice(3);
const report = pathToFileURL(resolve(folder, "report.html")).href;
const { runs, settings, sentences, measure } = JSON.parse(readFileSync(expected, "utf8"));
const { value, key } = page;
const cells = (selector) => value(`Array.from(document.querySelectorAll(${JSON.stringify(selector)}), (cell) => cell.textContent)`);

async function exploreSettings() {
  same((await cells("#settings tbody tr")).length, settings.length, "settings");
  same((await cells("#sentences li")).join(), sentences.join(), "sentences about the settings");
}

async function exploreRuns() {
  same((await cells("#runs tbody th")).join(), runs.map((run) => run.name).join(), "runs, best first");
  await press(`#runs button[data-column="seed"]`);
  const seeds = (await value(`Array.from(document.querySelectorAll("#runs tbody tr"), (row) => row.dataset.row)`)).map((row) => runs[row].seed);
  check(seeds.every((seed, i) => i === 0 || seeds[i - 1] <= seed), `not sorted by seed: ${seeds}`);
  const last = runs.length - 1;
  await value(`document.querySelector('#runs tr[data-row="${last}"]').focus()`);
  await key("Enter");
  same((await dataset("reading")).run, String(last), "Enter selects the run of its row");
  check((await value(`document.getElementById("reading").textContent`)).includes(runs[last].name), "the reading names the run");
}

async function exploreCharts() {
  for (const x of ["tokens", "seconds", "step"]) {
    await choose("x", x);
    same((await cells("#curves path.curve")).length, runs.length, `curves by ${x}`);
  }
  const dots = await value(`Array.from(document.querySelectorAll("#ends circle"), (dot) => dot.dataset.run)`);
  same(dots.length, runs.filter((run) => run.best_valid_loss !== null).length, "dots");
  await press("#ends circle:last-of-type");
  same((await dataset("reading")).run, dots.at(-1), "a click on a dot selects its run");
}

async function exploreHeads() {
  for (const score of ["induction", "zero_ablation"]) {
    await choose("score", score);
    const displayed = await cells("#heads tbody tr:first-child td");
    const heads = runs[0].heads.flat().map((head) => head[score]);
    heads.forEach((head, i) => check(Math.abs(Number(displayed[i].replace("−", "-")) - head) < 0.006, `${score} of head ${i}: displayed ${displayed[i]}, expected ${head}`));
  }
}

async function exploreFiles() {
  const files = await savePanels();
  same(Object.keys(files).length, 3 * 5, "saved files");
  const losses = rowsOf(files["comparison-lowest-losses.csv"].text).slice(1).map((row) => row.at(-1));
  same(losses.join(), runs.map((run) => (measure === "above_floor" ? run.above_floor : run.best_valid_loss)).join(), "the losses in the CSV");
}

async function exploreStyles() {
  for (const scheme of Object.keys(SCHEMES)) {
    await emulate(scheme);
    const lowest = await lowestContrast("#runs td, #runs th, #settings td, #reading", "color");
    check(lowest >= 4.5, `text has a contrast of ${lowest} (${scheme})`);
    await screenshot(`compare-${scheme}`);
  }
  await emulate("usual");
  await page.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true });
  const over = await value(`document.documentElement.scrollWidth - innerWidth`);
  check(over <= 0, `at a width of 360 pixels, the page is ${over} pixels wider than the window`);
  await screenshot("compare-phone");
}

await explore(report, [() => page.open(report), exploreSettings, exploreRuns, exploreCharts, exploreHeads, exploreFiles, exploreStyles]);
