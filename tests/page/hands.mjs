// The user actions and checks that the scripts of this folder share.

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "./browser.mjs";

const failures = [];
let checks = 0;

export function check(holds, message) {
  checks += 1;
  if (!holds && failures.length < 40) failures.push(message);
}
export function same(found, wanted, what) {
  check(found === wanted, `${what}: found ${JSON.stringify(found)}, expected ${JSON.stringify(wanted)}`);
}

const [program] = process.argv.slice(2);
export const page = await launch(program).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
const { value, move, click } = page;

/** Returns the data attributes of an element. */
export const dataset = (id) => value(`({...document.getElementById(${JSON.stringify(id)}).dataset})`);
/** Returns the text of an element. */
export const text = (id) => value(`document.getElementById("${id}").textContent`);
/** Types a text into a field, in place of its contents. */
export const type = (typed, id = "input-text") => value(`(() => {
  const field = document.getElementById("${id}");
  field.value = ${JSON.stringify(typed)};
  field.dispatchEvent(new Event("input", { bubbles: true }));
})()`);
/** Waits until the page, if it runs a model, has computed its answer and the expression holds, which counts as a check. */
export async function until(expression, what, attempts = 500) {
  for (let i = 0; i < attempts; i++) {
    const isComputed = `(!document.getElementById("try") || document.getElementById("try").ariaBusy === "false")`;
    if (await value(`${isComputed} && Boolean(${expression})`)) return check(true, what);
    await new Promise((done) => setTimeout(done, 20));
  }
  check(false, `${what}: ${expression}`);
}
/** Scrolls an element into view, and returns its middle and its box in the window as soon as the page no longer moves it. */
export async function middle(selector) {
  const box = await value(`(async () => {
    let last = null;
    for (let frame = 0; frame < 100; frame++) {
      const found = document.querySelector(${JSON.stringify(selector)});
      if (!found) return null;
      found.scrollIntoView({ block: "center" });
      const { left, top, width, height } = found.getBoundingClientRect();
      const box = { x: left + width / 2, y: top + height / 2, left, top, width, height };
      if (last && Object.keys(box).every((name) => box[name] === last[name])) return box;
      last = box;
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }
    return last;
  })()`);
  if (!box || box.width === 0) throw new Error(`${selector} is not visible`);
  return box;
}
export async function press(selector) {
  const { x, y } = await middle(selector);
  await click(x, y);
}
export async function point(selector) {
  const { x, y } = await middle(selector);
  await move(x, y);
}
/** Points at an element until the expression holds, because what the page computes may still move the element. */
export async function pointUntil(selector, expression, what) {
  for (let i = 0; i < 20; i++) {
    await point(selector);
    await new Promise((done) => setTimeout(done, 20));
    if (await value(`Boolean(${expression})`)) return check(true, what);
  }
  await until(expression, what);
}
/** Waits until the address holds the state of the page, which is written by a timer of 300 ms; timers of a page end in order. */
export async function addressWritten() {
  await until("true", "the page has computed its answer");
  await value("new Promise((done) => setTimeout(done, 400))");
}
/** Waits until the page neither scrolls nor grows for some frames. */
export const settled = () => value(`(async () => {
  let last = "";
  for (let frame = 0, equal = 0; frame < 600 && equal < 20; frame++) {
    await new Promise(requestAnimationFrame);
    const now = [scrollY, document.documentElement.scrollHeight].join();
    equal = now === last ? equal + 1 : 0;
    last = now;
  }
})()`);
/** Reloads the page, and waits until the new one is ready. */
export async function reload() {
  await value("window.isOld = true");
  await page.send("Page.reload");
  const isReady = () => value(`!window.isOld && document.documentElement?.dataset.ready === "true"`).catch(() => false);
  for (let i = 0; i < 500 && !(await isReady()); i++) await new Promise((done) => setTimeout(done, 20));
  check(await isReady(), "the page is reloaded");
}
/** Chooses an option of a select by script, since no click opens its list in a headless browser. */
export const choose = (id, option) => value(`(() => {
  const select = document.getElementById(${JSON.stringify(id)});
  select.value = ${JSON.stringify(String(option))};
  select.dispatchEvent(new Event("change", { bubbles: true }));
})()`);

/** The colour schemes that a system can request: light, dark, and forced colours, which the user chooses. */
export const SCHEMES = {
  light: [{ name: "prefers-color-scheme", value: "light" }],
  dark: [{ name: "prefers-color-scheme", value: "dark" }],
  forced: [{ name: "forced-colors", value: "active" }],
};
export const emulate = (scheme) => page.send("Emulation.setEmulatedMedia", { media: "", features: SCHEMES[scheme] ?? [] });

/** Returns the lowest contrast between one of the elements' colours and the background behind them. */
export const lowestContrast = (selector, property) => value(`(() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => { for (; element; element = element.parentElement) { const color = parts(getComputedStyle(element).backgroundColor); if (color.length < 4 || color[3] === 1) return color; } return [255, 255, 255]; };
  const light = (rgb) => { const [r, g, b] = rgb.map((c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4)); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const contrast = (a, b) => { const [low, high] = [light(a), light(b)].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); };
  return Math.min(99, ...Array.from(document.querySelectorAll(${JSON.stringify(selector)}), (element) => contrast(parts(getComputedStyle(element).${property}), ground(element))));
})()`);

export async function screenshot(name) {
  if (!process.env.SCREENSHOTS) return;
  const { cssContentSize: { width, height } } = await page.send("Page.getLayoutMetrics");
  const clip = { x: 0, y: 0, width, height: Math.min(height, 6000), scale: 1 };
  const { data } = await page.send("Page.captureScreenshot", { captureBeyondViewport: true, clip });
  writeFileSync(join(process.env.SCREENSHOTS, `report-${name}.png`), Buffer.from(data, "base64"));
}

/** Runs the steps of a script, prints its failures or the number of checks, and exits. */
export async function explore(what, steps) {
  try {
    await page.send("Emulation.setDeviceMetricsOverride", { width: 1200, height: 1000, deviceScaleFactor: 1, mobile: false });
    for (const step of steps) await step();
  } catch (error) {
    failures.push(error.message);
  } finally {
    await page.close();
  }
  failures.push(...page.problems);
  for (const failure of failures) console.error(failure);
  if (failures.length === 0) console.log(`${checks} checks of ${what}`);
  process.exit(failures.length === 0 ? 0 : 1);
}
