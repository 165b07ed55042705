// Checks the accessibility of a report.html with axe-core.
//
//     node tests/page/accessible.mjs CHROMIUM REPORT.html AXE.min.js
//
// Checks the page as it opens, with the computation of a weight and two maps side by side, after a refused input, in the
// dark theme with a head switched off and the tour open, with lines, and at the width of a phone. Exits like explore.mjs; every violation
// that axe-core rates as serious or critical is a failure.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, emulate, explore, page, press, type, until } from "./hands.mjs";

const [report, axe] = process.argv.slice(3);
const { value } = page;

async function audit(what) {
  const faults = await value(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
    violations.filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, help, nodes }) => id + ", " + help + ": " + nodes.map(({ html }) => html.slice(0, 160)).slice(0, 3).join(" ")))`);
  check(faults.length === 0, `${what}: ${faults.join("; ")}`);
}

/** Opens the computation of a weight, and the list of all keys in it. */
async function openWeight() {
  if (await value(`document.getElementById("weight-open").hidden`)) return;
  await press("#weight-open");
  await new Promise((done) => setTimeout(done, 1000));
  await press("#pair > summary");
  if (!(await value(`document.getElementById("flow").hidden`))) await press("#flow > summary");
  if (await value(`document.getElementById("flow").open`)) await press("#flow > details > summary");
  await value(`document.querySelector("#weight details")?.setAttribute("open", "")`);
}

/** Opens the circuit and patching on an input with a replaced token. */
async function openCircuit() {
  if (await value(`document.getElementById("components").hidden`)) return;
  await press("#components > summary");
  await press("#components details > summary");
  if (await value(`document.getElementById("patching").hidden`)) return;
  await press("#patching > summary");
  await press("#exchange");
  await new Promise((done) => setTimeout(done, 2000));
  await press("#circuit-drawing .box");
}

/** Enters an input that is refused, audits the page, and restores the input. */
async function refuse(what) {
  if (await value(`document.getElementById("try").hidden`)) return;
  const before = await value(`document.getElementById("input-text").value`);
  await type("");
  await until(`document.getElementById("explorer").classList.contains("stale")`, "an empty input is refused");
  await audit(what);
  await type(before);
  await until(`!document.getElementById("explorer").classList.contains("stale")`, "the input is read again");
}

/** Uses the controls of the model if the page has one. */
async function useModel() {
  if (await value(`document.getElementById("try").hidden`)) return;
  await press("#switch-off");
  if (!(await value(`document.getElementById("tour-begin").hidden`))) await press("#tour-begin");
  await new Promise((done) => setTimeout(done, 1000));
}

await explore(report, [
  () => page.open(pathToFileURL(resolve(report)).href),
  () => value(`${readFileSync(axe, "utf8")}; 1`),
  () => audit("as opened"),
  openWeight,
  () => audit("with the computation of a weight and two maps"),
  openCircuit,
  () => audit("with the circuit and patching"),
  () => refuse("after a refused input"),
  () => emulate("dark"),
  () => refuse("after a refused input, dark"),
  () => press(`#views label:has(> input[value="tokens"])`),
  useModel,
  () => audit("in use, dark"),
  () => press(`#views label:has(> input[value="lines"])`),
  () => audit("with lines, dark"),
  () => page.send("Emulation.setDeviceMetricsOverride", { width: 360, height: 740, deviceScaleFactor: 2, mobile: true }),
  () => audit("on a phone"),
]);
