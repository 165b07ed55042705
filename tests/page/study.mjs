// Explores the report.html of a study as a user would, and compares its contents with the table of the study.
//
//     node tests/page/study.mjs CHROMIUM STUDY
//
// STUDY is the folder of the study. Sorts and chooses rows, clicks dots, changes axes and follows a link to the page of
// a trial; checks light, dark and forced colours, print, and the width of a phone.

import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { SCHEMES, check, choose, dataset, emulate, explore, lowestContrast, page, press, same, screenshot } from "./hands.mjs";
import { rowsOf, savePanels } from "./panels.mjs";

const [folder] = process.argv.slice(3);
const report = pathToFileURL(resolve(folder, "report.html")).href;
const [header, ...lines] = readFileSync(join(folder, "study.csv"), "utf8").trim().split("\n").map((line) => line.split(","));
const trials = lines.map((cells) => Object.fromEntries(cells.map((cell, i) => [header[i], cell])));
const { value, key } = page;
const shownTrials = () => value(`Array.from(document.querySelectorAll("#trials tbody tr"), (row) => row.dataset.row)`);

async function exploreTable() {
  same((await shownTrials()).length, trials.length, "rows of the table");
  const lossOf = (trial) => Number(trials.find((row) => row.trial === trial).loss);
  for (const [sort, sign] of [["ascending", 1], ["descending", -1]]) {
    await press(`#trials button[data-column="loss"]`);
    const losses = (await shownTrials()).filter((trial) => trials.find((row) => row.trial === trial).loss !== "").map(lossOf);
    check(losses.every((loss, i) => i === 0 || sign * (loss - losses[i - 1]) >= 0), `the table is not ${sort}: ${losses}`);
    same(await value(`document.querySelector('#trials th[aria-sort$="ending"]').ariaSort`), sort, "the heading shows the order");
    same(await value(`document.activeElement.dataset.column`), "loss", "and keeps the focus");
  }
  for (const trial of trials.slice(0, 2).map((row) => row.trial)) {
    await value(`document.querySelector('#trials tr[data-row="${trial}"]').focus()`);
    await key("Enter");
    await isChosen(trial, "Enter on its row");
  }
}

async function isChosen(trial, by) {
  same((await dataset("reading")).trial, trial, `the selected trial, by ${by}`);
  same(await value(`document.querySelector('#trials tr[aria-selected="true"]').dataset.row`), trial, `its row is marked, by ${by}`);
}

async function exploreDots() {
  const across = await value(`Array.from(document.getElementById("x").options, (option) => option.value)`);
  for (const x of across) {
    await choose("x", x);
    const dots = await value(`Array.from(document.querySelectorAll("#dots circle"), (dot) => dot.dataset.trial)`);
    const known = trials.filter((trial) => trial.loss !== "" && trial[x] !== "").length;
    check(header.includes(x) ? dots.length === known : dots.length > 0, `${dots.length} dots of ${known} trials by ${x}`);
    // The last dot is on top of all others.
    await press("#dots circle:last-of-type");
    await isChosen(dots.at(-1), `a click on its dot by ${x}`);
  }
}

/** Checks that a trial that was trained to its end has a page, linked from its number. */
async function exploreLinks() {
  const links = await value(`Array.from(document.querySelectorAll("#trials a"), (link) => [link.closest("tr").dataset.row, link.getAttribute("href")])`);
  const finished = trials.filter(({ ended }) => ended === "completed" || ended === "early_stopped");
  check(finished.length > 0 && finished.every(({ trial }) => links.some(([linked]) => linked === trial)), `trials without a link: ${JSON.stringify(links)}`);
  for (const [trial, href] of links) check(existsSync(join(folder, href)), `trial ${trial} leads to ${href}, which does not exist`);
  const [trial, href] = links[0];
  await press(`#trials tr[data-row="${trial}"] a`);
  const runName = `document.getElementById("run")?.textContent`;
  for (let i = 0; i < 500 && !(await value(runName).catch(() => "")); i++) await new Promise((done) => setTimeout(done, 20));
  same(await value(`location.href.split("#")[0]`), new URL(href, report).href, "a click on a trial");
  same(await value(runName), href.split("/").at(-2), "the page of the trial");
  await page.open(report);
}

async function exploreFiles() {
  const files = await savePanels();
  same(Object.keys(files).length, 3 * 3, "saved files");
  const csv = Object.entries(files).find(([name]) => name.endsWith("-table.csv"));
  const [header, ...rows] = rowsOf(csv?.[1].text ?? "");
  const losses = (rows, columns) => rows.map((row) => columns.map((column) => row[column]).join(" ")).sort().join();
  same(losses(rows, ["trial", "loss"].map((name) => header.indexOf(name))), losses(trials, ["trial", "loss"]), "the losses in the CSV of the trials");
}

async function exploreStyles() {
  const backgrounds = {};
  for (const scheme of Object.keys(SCHEMES)) {
    await emulate(scheme);
    backgrounds[scheme] = await value(`getComputedStyle(document.body).backgroundColor`);
    const lowest = await lowestContrast("#trials td, #trials th, #trials a, #reading", "color");
    check(lowest >= 4.5, `text has a contrast of ${lowest} (${scheme})`);
    await screenshot(`study-${scheme}`);
  }
  check(backgrounds.light !== backgrounds.dark, "light and dark look the same");
  await page.send("Emulation.setEmulatedMedia", { media: "print" });
  const truncated = await value(`Array.from(document.querySelectorAll(".scroll"), (box) => box.scrollHeight - box.clientHeight).filter((more) => more > 1).length`);
  same(truncated, 0, "tables that are truncated in print");
  await emulate("usual");
  await page.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true });
  const over = await value(`document.documentElement.scrollWidth - innerWidth`);
  check(over <= 0, `at 360 pixels the page is ${over} wider than the window`);
  await screenshot("study-phone");
}

await explore(report, [() => page.open(report), exploreTable, exploreDots, exploreLinks, exploreFiles, exploreStyles]);
