// A headless Chromium, driven by the DevTools protocol over a pipe, without a package or a port.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
];
/** The timeout for an answer of the browser and for loading a page, in milliseconds. */
const TIMEOUT_MS = 60_000;

/** Starts a browser with one page; `page.problems` collects the errors and requests of the page. */
export async function launch(program) {
  const profile = mkdtempSync(join(tmpdir(), "explore-"));
  const browser = spawn(program, [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const [toBrowser, fromBrowser] = [browser.stdio[3], browser.stdio[4]];
  const waiting = new Map();
  const problems = [];
  let number = 0;
  let session;
  let unread = "";

  const fail = (reason) => {
    for (const { reject } of waiting.values()) reject(new Error(reason));
    waiting.clear();
  };
  browser.on("error", (error) => fail(`${program} could not be started: ${error.message}`));
  browser.on("exit", (code) => fail(`${program} exited unexpectedly with code ${code}`));
  toBrowser.on("error", () => {});
  fromBrowser.on("data", (bytes) => {
    unread += bytes.toString();
    const messages = unread.split("\0");
    unread = messages.pop();
    for (const message of messages.map((text) => JSON.parse(text))) {
      if (message.id) {
        const { resolve, reject } = waiting.get(message.id) ?? {};
        waiting.delete(message.id);
        if (message.error) reject?.(new Error(message.error.message));
        else resolve?.(message.result);
      } else {
        note(message.method, message.params);
      }
    }
  });

  /** Records exceptions, warnings, dialogs and network requests, which a page must not cause. */
  function note(method, params) {
    if (method === "Runtime.exceptionThrown") problems.push(`exception: ${params.exceptionDetails.exception?.description ?? params.exceptionDetails.text}`);
    if (method === "Runtime.consoleAPICalled" && ["error", "warning", "assert"].includes(params.type)) {
      problems.push(`console ${params.type}: ${params.args.map((value) => value.value ?? value.description).join(" ")}`);
    }
    if (method === "Log.entryAdded" && ["error", "warning"].includes(params.entry.level)) problems.push(`log: ${params.entry.text}`);
    if (method === "Network.requestWillBeSent" && !/^(file|data|blob):/.test(params.request.url)) problems.push(`request: ${params.request.url}`);
    if (method === "Page.javascriptDialogOpening") {
      problems.push(`dialog: ${params.message}`);
      send("Page.handleJavaScriptDialog", { accept: true }).catch(() => {});
    }
  }

  function send(method, params = {}) {
    return new Promise((resolve, reject) => {
      const id = ++number;
      const timer = setTimeout(() => reject(new Error(`${method} was not answered within ${TIMEOUT_MS / 1000} s`)), TIMEOUT_MS);
      const done = (settle) => (value) => {
        clearTimeout(timer);
        settle(value);
      };
      waiting.set(id, { resolve: done(resolve), reject: done(reject) });
      toBrowser.write(`${JSON.stringify({ id, method, params, sessionId: session })}\0`);
    });
  }

  /** Returns the value of an expression in the page. */
  async function value(expression) {
    const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(`${expression}: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`);
    return result.value;
  }

  async function open(url) {
    await send("Page.navigate", { url });
    const end = Date.now() + TIMEOUT_MS;
    while ((await value("document.documentElement?.dataset.ready")) !== "true") {
      if (Date.now() > end || problems.length > 0) throw new Error(`${url} did not become ready: ${problems.join("; ") || "no error is reported"}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  const move = (x, y) => send("Input.dispatchMouseEvent", { type: "mouseMoved", x, y });
  async function click(x, y) {
    await move(x, y);
    await send("Input.dispatchMouseEvent", { type: "mousePressed", x, y, button: "left", clickCount: 1 });
    await send("Input.dispatchMouseEvent", { type: "mouseReleased", x, y, button: "left", clickCount: 1 });
  }
  async function key(name) {
    const codes = { ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, Home: 36, End: 35, Enter: 13, Tab: 9, " ": 32 };
    const press = { key: name, code: name === " " ? "Space" : name, windowsVirtualKeyCode: codes[name], ...(name === "Enter" ? { text: "\r" } : {}) };
    await send("Input.dispatchKeyEvent", { type: "keyDown", ...press });
    await send("Input.dispatchKeyEvent", { type: "keyUp", ...press });
  }

  async function close() {
    await send("Browser.close").catch(() => {});
    await new Promise((resolve) => (browser.exitCode === null ? browser.once("exit", resolve) : resolve()));
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }

  try {
    const { targetInfos } = await send("Target.getTargets");
    const { targetId } = targetInfos.find((target) => target.type === "page");
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
  } catch (error) {
    browser.kill();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    throw error;
  }
  return { send, value, open, move, click, key, close, problems };
}
