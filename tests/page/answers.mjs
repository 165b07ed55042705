// Checks that the page of a model that learned only answers counts only the targets of answers.
//
//     node tests/page/answers.mjs CHROMIUM REPORT.html LOSS
//
// LOSS is the loss on the sequence of the page, in nats. Exits like explore.mjs.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, dataset, explore, page } from "./hands.mjs";

const [report, expected] = process.argv.slice(3);

async function exploreLoss() {
  await page.open(pathToFileURL(resolve(report)).href);
  for (let i = 0; i < 250 && (await dataset("input-loss")).loss === undefined; i++) await new Promise((done) => setTimeout(done, 20));
  const { loss } = await dataset("input-loss");
  check(Math.abs(Number(loss) - Number(expected)) < 1e-4, `the loss ${loss} is that of the answer, ${expected}`);
}

await explore(report, [exploreLoss]);
