// Copies links, undoes edits, reloads, and shows single panels of report pages.
//
//     node tests/page/links.mjs CHROMIUM REPORT.html PLAIN.html
//
// REPORT.html is the page of a run of integers with a replay and a circuit; PLAIN.html has no replay and no curves, such as
// the page of `inspect`. Exits like explore.mjs.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { addressWritten, check, choose, dataset, explore, page, press, reload, same, settled, text, type, until } from "./hands.mjs";

const [report, plain] = process.argv.slice(3).map((path) => pathToFileURL(resolve(path)).href);
const { value } = page;

const chips = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => dataset.id).join(" ")`);
const copyLink = () => value(`document.getElementById("link").dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))`);
/** Types a text as the whole input, and waits until the model has read it. */
async function read(typed) {
  await type(typed);
  await until(`document.querySelectorAll("#predictions > [data-index]").length === ${typed.split(" ").length} && !document.getElementById("input-note").classList.contains("refused")`, `${typed} is read`);
}
/** Loads an address as a new page. */
async function open(address) {
  await page.send("Page.navigate", { url: "about:blank" });
  await page.open(address);
}

/** Checks that no link is copied for an input that the model does not read. */
async function refuseLinks() {
  await open(report);
  await value(`window.copied = null; Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text; } }, configurable: true })`);
  await read("1 2 3");
  for (const typed of ["1 2 xx 3", ""]) {
    await type(typed);
    await copyLink();
    await until(`document.getElementById("link-status").textContent !== ""`, "a status");
    check((await text("link-status")).includes("No link was copied"), `“${typed}”: ${await text("link-status")}`);
    same(await value("window.copied"), null, `the copied link for “${typed}”`);
  }
  await read("1 2 3");
  await copyLink();
  await until("window.copied !== null", "a valid input is copied");
}

/** Checks that each replaced word and each pasted text is undone alone. */
async function undoEdits() {
  await read("1 2 3 4");
  const edits = ["1 9 3 4", "1 9 8 4", "5 6 7 8", "8 7 6 5"];
  for (const edit of edits) await read(edit);
  for (const before of [...edits.slice(0, -1).reverse(), "1 2 3 4"]) {
    await press("#undo");
    await until(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => dataset.id).join(" ") === "${before}"`, `undone: ${before}`);
  }
  // The digits of one number are one word.
  for (const edit of ["1 2 3 4 1", "1 2 3 4 12"]) await read(edit);
  await press("#undo");
  await until(`document.querySelectorAll("#chips > [data-index]").length === 4`, "a word is undone at once");
  same(await chips(), "1 2 3 4", "the input before the word");
}

/** Checks that a link restores the comparison with a kept input. */
async function linkKeptInput() {
  await read("1 2 3 4 1 2");
  await value(`document.getElementById("pair").open = true`);
  await until(`!document.getElementById("keep-input").hidden`, "the input can be kept");
  await press("#keep-input");
  await read("4 3 2 1 4 3");
  await choose("other-head", "1 0");
  await press("#chip-2");
  await addressWritten();
  check((await value("location.hash")).includes("&pair=1_0_kept&kept-tokens=1.2.3.4.1.2"), "the link holds the kept input");
  const before = await dataset("pair-reading");
  check(before.first !== "" && before.second !== "", `weights on both inputs: ${JSON.stringify(before)}`);
  await open(await value("location.href"));
  await until(`document.querySelectorAll("#pair-maps canvas").length > 2`, "the comparison is restored");
  check((await value(`document.getElementById("other-sample").selectedOptions[0].textContent`)).includes("kept input: 1 2 3 4"), "with the kept input");
  same(JSON.stringify(await dataset("pair-reading")), JSON.stringify(before), "the compared weights");
  same(await chips(), "4 3 2 1 4 3", "and the input itself");
}

/** Checks that a reload keeps the panel in the window, and the panels that are open. */
async function reloadInPlace() {
  await open(report);
  const details = ["flow", "components"];
  for (const id of details) await value(`document.getElementById("${id}").open = true`);
  await until(`document.querySelectorAll("#flow-table tr").length > 3 && document.querySelectorAll("#circuit-drawing .box").length > 3`, "the panels are drawn");
  await value(`window.scrollBy(0, document.getElementById("components").getBoundingClientRect().top - 90)`);
  const top = () => value(`Math.round(document.getElementById("components").getBoundingClientRect().top)`);
  same(await top(), 90, "the circuit is in the window");
  await reload();
  await until(`document.querySelectorAll("#circuit-drawing .box").length > 3 && document.querySelectorAll("#flow-table tr").length > 3`, "its panels are open");
  await settled();
  check(Math.abs(await top() - 90) < 30, `the circuit stays in the window: ${await top()} instead of 90`);
}

/** Checks that a single panel has its controls, and that a missing one is named. */
async function showPanels() {
  const isVisible = (id) => value(`document.getElementById("${id}").checkVisibility()`);
  await open(`${report}?panel=replay`);
  for (const id of ["film-step", "film-play", "film-head", "film-strip"]) check(await isVisible(id), `?panel=replay shows ${id}`);
  check(!(await isVisible("matrix")), "but not the map");
  await open(`${report}?panel=patching`);
  for (const id of ["chips", "patching-start"]) check(await isVisible(id), `?panel=patching shows ${id}`);
  for (const name of ["replay", "heads-by-step", "loss"]) {
    await open(`${plain}?panel=${name}`);
    const note = await value(`document.querySelector('main > [role="alert"]')?.textContent ?? ""`);
    check(note.startsWith(`The page has no panel “${name}”; panels are attention,`) && !note.replace(`“${name}”`, "").includes(name), `the note on ${name}: ${note}`);
  }
}

await explore(report, [refuseLinks, undoEdits, linkKeptInput, reloadInPlace, showPanels]);
