// Types input that the page of an integer model cannot read, and prints the page. Checks its layout in a tall window.
//
//     node tests/page/refused.mjs CHROMIUM REPORT.html
//
// The vocabulary has the integers below 16, and the context is below 100. Exits like explore.mjs.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, dataset, emulate, explore, page, press, same, screenshot, until } from "./hands.mjs";

const [report] = process.argv.slice(3);
const { value } = page;

/** Types a text given as an expression, so that a long text need not be sent. */
const type = (expression) => value(`(() => {
  const field = document.getElementById("input-text");
  field.value = ${expression};
  field.dispatchEvent(new Event("input", { bubbles: true }));
})()`);
const ids = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => dataset.id).join(" ")`);
const note = () => value(`document.getElementById("input-note").textContent`);
const isStale = () => value(`Array.from(document.querySelectorAll(".stale-note")).every((note) => !note.hidden) && document.getElementById("explorer").classList.contains("stale")`);
const predicted = () => value(`document.getElementById("predictions").children.length`);

/** Checks that the input is refused with a message, and that the results of earlier input are marked as stale. */
async function refused(words) {
  await until(`document.getElementById("input-note").classList.contains("refused")`, `refused: ${words}`);
  check((await note()).includes(words), `gives the reason: ${await note()}`);
  check(await isStale(), `${words}: the panels are marked as stale`);
  same(await value(`document.getElementById("candidates").children.length`), 0, `${words}: no next token`);
  same((await dataset("input-loss")).loss, "", `${words}: no loss`);
}
async function answered(count) {
  await until(`!document.getElementById("input-note").classList.contains("refused") && document.getElementById("predictions").children.length === ${count}`, `${count} tokens are answered`);
  check(!(await isStale()), "and the panels are up to date");
}

/** Opens the page in a tall window, and checks that the map fits next to the panels that appear later. */
async function exploreFit() {
  const size = (height) => page.send("Emulation.setDeviceMetricsOverride", { width: 1280, height, deviceScaleFactor: 1, mobile: false });
  await size(1400);
  await page.open(pathToFileURL(resolve(report)).href);
  await until("!document.getElementById(\"next\").hidden", "the panels of the model appear");
  const [map, stage] = await value(`["matrix", "stage"].map((id) => document.getElementById(id).getBoundingClientRect().right)`);
  check(map <= stage + 1, `the map ends at ${map}, within its column, which ends at ${stage}`);
  await size(800);
}

async function exploreNumbers() {
  await type(`"1 2, 3"`);
  await answered(3);
  same(await ids(), "1 2 3", "numbers between spaces and commas");
  await type(`"1 2 99"`);
  await refused("99");
  same(await ids(), "1 2", "a number is not split");
  same(await predicted(), 3, "the last answer stays, marked as stale");
  await screenshot("refused");
  await press("#switch-off");
  await refused("99");
  same(await value(`document.getElementById("input-text").value`), "1 2 99", "the typed text stays when a head is changed");
  await press("#undo");
  await refused("99");
  await press("#restore");
  await refused("99");
  await type(`"07 1"`);
  await answered(2);
  same(await ids(), "7 1", "leading zeros are read as in the program");
}

async function exploreHostile() {
  for (const [text, words] of [[`""`, "is empty"], [`"  ,, "`, ",,"], [`"1 😀 2"`, "😀"], [`"1 \\u0633\\u0644\\u0627\\u0645"`, "سلام"], [`"1 <img src=x>"`, "<img"], [`"-1"`, "-1"]]) {
    await type(`"1 2"`);
    await answered(2);
    await type(text);
    await refused(words);
  }
  await type(`"5"`);
  await answered(1);
  await type(`"5 ".repeat(130_000)`);
  await refused("the text has 260,000");
  await type(`"5 ".repeat(2_000)`);
  await refused("2000");
  check(await value(`document.getElementById("chips").children.length < 600`), "only some of its tokens are drawn");
  await type(`"5 ".repeat(512)`);
  await answered(512);
  await press("#undo");
}

/** Checks that the page is printed with light colours in any theme. */
async function explorePrint() {
  await page.open(pathToFileURL(resolve(report)).href);
  await emulate("dark");
  const colors = `[getComputedStyle(document.body).backgroundColor, document.querySelector("#history-chart .curve, #loss-chart .curve")?.getAttribute("stroke")].join()`;
  check((await value(colors)).startsWith("rgb(20, 22, 27)"), "the page is dark");
  await value(`window.addEventListener("beforeprint", () => { window.printedColors = ${colors}; })`);
  await page.send("Page.printToPDF", { printBackground: true });
  check((await value("window.printedColors")).startsWith("rgb(255, 255, 255)"), `printing uses light colours: ${await value("window.printedColors")}`);
  check((await value(colors)).startsWith("rgb(20, 22, 27)"), "the page is dark again after printing");
  await page.send("Emulation.setEmulatedMedia", { media: "print", features: [{ name: "prefers-color-scheme", value: "dark" }] });
  check((await value(colors)).startsWith("rgb(255, 255, 255)"), "print styles are light");
  await screenshot("printed");
}

await explore(report, [exploreFit, exploreNumbers, exploreHostile, explorePrint]);
