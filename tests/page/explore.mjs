// Explores a report.html as a user would, and compares its contents with the run's data.
//
//     node tests/page/explore.mjs CHROMIUM REPORT.html EXPECTED.json
//
// EXPECTED.json is the `Page` that the report was written from, as serialised by serde. The script reads `run`,
// `config`, `summary`; `loss` with `training`, `validation`, `learning_rate` (lists of `{step, value}`), `floor` and
// `diverged`; `readings`, each with `sequence`, `source`, `inputs` (texts), `targets` (`{text, probability, role}` or
// null) and `most_likely` (lists of `{token, probability}`); `views`, each with `attention`, `cross` and `encoder`
// (`[layer][head]`, each `[query, key]` in row-major order); `chance` (`[layer]`, by score key); `heads` (`[layer][head]`, each
// with its values by score key), `shown` (by kind, the head of each layer that is selected first), `history` (`{step,
// heads}`).
//
// Reads the predictions of every sample, and visits every layer and head of the first two samples and the last one
// by clicks; sorts thumbnails by every score; points at cells, tokens, predictions and curves with mouse and keyboard;
// checks light and dark, print, and the widths of a screen and of a phone. Roots of weights must agree to within half a
// step of 8 bits, and all other numbers to seven digits.
//
// Exits with code 0 and one line that counts the checks, or with code 1 and a line per failure. Failures include
// every warning or error on the console, every exception and dialog, and every request other than for a file or data.
// SCREENSHOTS=FOLDER saves screenshots of the page there.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { exploreCharts, exploreFilm } from "./charts.mjs";
import { report } from "./expected.mjs";
import { explore, page } from "./hands.mjs";
import { exploreComparisons, exploreSamples, exploreScales, exploreThumbnails } from "./maps.mjs";
import { exploreKeyboard, exploreStyles, exploreTexts } from "./styles.mjs";

await explore(report, [
  () => page.open(pathToFileURL(resolve(report)).href),
  exploreTexts, exploreCharts, exploreSamples, exploreThumbnails, exploreScales, exploreComparisons, exploreFilm, exploreKeyboard, exploreStyles,
]);
