// Explores the predictions, the curves and the training replay of a page.

import { close, expected, headInWords, lossSteps, scores, some } from "./expected.mjs";
import { check, choose, dataset, middle, page, point, press, same } from "./hands.mjs";

const { value, move, click, key } = page;

/** Compares the predictions of a sample with the data. */
export async function explorePredictions(sample) {
  const { inputs, targets, most_likely } = expected.readings[sample];
  const cells = await value(`Array.from(document.getElementById("predictions").children, (cell) => cell.className)`);
  same(cells.length, targets.length, `predictions of sample ${sample}`);
  cells.forEach((kind, position) => {
    const target = targets[position];
    const wanted = target === null ? "open" : target.role === "undetermined" ? "unknowable" : most_likely[position][0]?.token === target.text ? "hit" : "miss";
    same(kind, wanted, `prediction ${position} of sample ${sample}`);
  });
  const count = await value(`document.getElementById("predictions-count").textContent`);
  if (targets.every((target) => target === null || target.role === "unknown")) check(!count.includes("known"), `the roles of targets are unknown, but the page shows: ${count}`);
  for (const position of some(targets.length)) {
    await point(`#prediction-${position}`);
    const found = await dataset("prediction");
    const [target, probable] = [targets[position], most_likely[position]];
    const label = `prediction ${position} of sample ${sample}`;
    same(found.position, String(position), label);
    same(found.after, inputs[position], `${label}: after`);
    same(found.truth, target?.text ?? "", `${label}: truth`);
    close(found.truthProbability, target?.probability, `${label}: probability of the truth`);
    same(found.predicted, probable[0]?.token ?? "", `${label}: predicted`);
    close(found.probability, probable[0]?.probability, `${label}: probability`);
  }
}

/** Checks both charts by pointing at steps along their shared time axis. */
export async function exploreCharts() {
  const loss = expected.loss;
  if (loss.floor !== null) close((await dataset("floor")).value, loss.floor, "floor");
  const series = { training: loss.training, objective: loss.objective ?? [], validation: loss.validation, learningRate: loss.learning_rate };
  const box = await middle("#loss-chart");
  const [seen, read] = [new Set(), new Set()];
  for (let i = 1; i < 24; i++) {
    await move(box.left + 68 + ((box.width - 126) * i) / 24, box.top + box.height / 2);
    const found = await dataset("loss-reading");
    if (found.step === undefined) break;
    seen.add(found.step);
    for (const [name, points] of Object.entries(series)) {
      if (found[name] === undefined) continue;
      read.add(name);
      close(found[name], points.find(({ step }) => step === Number(found.step))?.value, `${name} at step ${found.step}`);
    }
  }
  check(seen.size > 1 || loss.training.length < 3, `pointing at the loss chart reads steps: ${[...seen]}`);
  check(read.has("objective") === (loss.objective ?? []).length > 0, `the objective is read if the run has one: ${[...read]}`);
  if (loss.diverged) same((await dataset("diverged")).step, String(loss.diverged), "the step at which the run diverged");
  const note = await value(`document.getElementById("weights-note").hidden ? "" : document.getElementById("weights-note").textContent`);
  if (loss.diverged) check(note.includes(`diverged at step ${loss.diverged.toLocaleString("en-US")}`), `the page names the step: ${note}`);
  check(note.includes(loss.weights ?? ""), `the page names the weights that it shows: ${note}`);
  if (expected.history.length === 0) return;
  const known = scores.filter((score) => expected.history.some(({ heads }) => heads.flat().some((head) => head[score] !== null)));
  for (const score of known) {
    await choose("score", score);
    const chart = await middle("#history-chart");
    for (let i = 1; i < 8; i++) {
      await move(chart.left + 68 + ((chart.width - 126) * i) / 8, chart.top + 20 + ((chart.height - 70) * i) / 8);
      const { step, layer, head, value: shown } = await dataset("history-reading");
      const scored = expected.history.find((scored) => scored.step === Number(step));
      check(scored !== undefined, `${score}: step ${step} was not scored`);
      close(shown, scored?.heads[layer][head][score], `${score} of layer ${layer}, head ${head} at step ${step}`);
    }
    await checkCurveNames(score);
    const { layer, head } = await dataset("history-reading");
    await click(chart.left + 68 + ((chart.width - 126) * 7) / 8, chart.top + 20 + ((chart.height - 70) * 7) / 8);
    const chosen = await value(`document.getElementById("chosen").textContent`);
    same(chosen, await headInWords(layer, head), `a click on a curve of ${score} chooses its head`);
  }
}

/** Checks that the selected head and the heads with the highest scores are named, apart from each other and in the chart. */
async function checkCurveNames(score) {
  const names = await value(`Array.from(document.querySelectorAll("#history-chart .curve-name"), (name) => ({ layer: Number(name.dataset.layer), head: Number(name.dataset.head), text: name.textContent, y: Number(name.getAttribute("y")), right: name.getBoundingClientRect().right }))`);
  const highest = ({ layer, head }) => expected.history.reduce((most, { heads }) => Math.max(most, heads[layer][head][score] ?? -Infinity), -Infinity);
  const all = expected.heads.flatMap((heads, layer) => heads.map((_, head) => ({ layer, head }))).filter((head) => highest(head) > -Infinity);
  same(names.length, Math.min(all.length, 6), `named curves of ${score}`);
  for (const { layer, head, text } of names) same(text, `L${layer} H${head}`, `the name of a curve of ${score}`);
  const selected = await dataset("reading");
  check(names.some(({ layer, head }) => `${layer} ${head}` === `${selected.layer} ${selected.head}`), `the curve of the selected head is named for ${score}`);
  const unnamed = all.filter(({ layer, head }) => !names.some((name) => name.layer === layer && name.head === head));
  const others = names.filter(({ layer, head }) => `${layer} ${head}` !== `${selected.layer} ${selected.head}`);
  check(others.every((name) => unnamed.every((head) => highest(head) <= highest(name))), `the named heads have the highest values of ${score}`);
  const box = await middle("#history-chart");
  check(names.every(({ right }) => right <= box.left + box.width), `names of ${score} are cut`);
  check(names.every(({ y }, i) => names.every((other, j) => i === j || Math.abs(other.y - y) >= 13)), `names of ${score} touch: ${names.map(({ y }) => y)}`);
}

/** Checks that the film shows each of its steps in all panels, and ends with the weights of the page. */
export async function exploreFilm() {
  if (await value(`document.getElementById("film").hidden`)) return;
  await choose("sample", expected.sample);
  const frames = await value(`Array.from(document.getElementById("film-strip").children, ({ dataset, textContent }) => ({ ...dataset, name: textContent }))`);
  check(frames.length > 2 && frames[0].name === "step 0" && frames.at(-1).name === "end", `steps of the film: ${frames.map(({ name }) => name)}`);
  same((await dataset("film-reading")).frame, String(frames.length - 1), "the film is at its end");
  const [slider, map] = [await middle("#film-step"), await value(`document.getElementById("bar").getBoundingClientRect().bottom`)];
  check(slider.top > map && slider.top - map < 250, `the slider of the film is ${slider.top - map} pixels below the map that it moves`);
  for (const { frame, sample, name } of frames) {
    await press(`#film-strip > [data-frame="${frame}"]`);
    same((await dataset("reading")).sample, sample, `the explorer shows ${name}`);
    same(await value(`document.getElementById("film-step").value`), frame, `the slider is at ${name}`);
    same(await value(`document.getElementById("predictions").children.length`), expected.readings[expected.sample].inputs.length, `predictions at ${name}`);
  }
  const steps = lossSteps(expected.loss);
  if (steps.length > 0) same((await dataset("loss-reading")).step, String(Math.max(...steps)), "the end of the film is the last step of the curves");
  const images = await value(`Array.from(document.querySelectorAll("#film-strip canvas"), (canvas) => canvas.toDataURL())`);
  // The map at the end may be computed by the model; the other one is stored in bytes.
  const change = await value(`(() => {
    const [before, end] = Array.from(document.querySelectorAll("#film-strip canvas")).slice(-2).map((canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data);
    return before.length === end.length ? before.reduce((most, value, i) => Math.max(most, Math.abs(value - end[i])), 0) : Infinity;
  })()`);
  const best = expected.summary.find(([name]) => name === "best step")?.[1];
  if (frames.at(-2).name === `step ${best}`) check(change <= 16, `the map of the best step equals the map of the best weights: colours differ by ${change}`);
  check(new Set(images).size > 1, "maps change during the run");
  await value(`document.getElementById("film-step").focus()`);
  await key("ArrowLeft");
  same((await dataset("film-reading")).frame, String(frames.length - 2), "arrow keys move the film");
  await choose("sample", 0);
}
