// What the model predicted along a sequence, each time after the true tokens.

const tokenOf = (id) => (id === null ? null : data.tokens[id]);

/** How a prediction came out: right, missed, or about what could not be known. */
function outcome({ truth, determined, probable }) {
  if (truth === null || !determined) return "unknowable";
  return probable.length > 0 && probable[0][0] === truth ? "hit" : "miss";
}

const OUTCOMES = { hit: "right", miss: "missed", unknowable: "cannot be known" };

function drawPredictions() {
  const { predictions, source } = data.samples[state.sample];
  at("source").hidden = source === undefined;
  at("source").replaceChildren("The encoder reads ", ...(source ?? []).flatMap((token) => [tokenElement(data.tokens[token]), " "]));
  const outcomes = predictions.map(outcome);
  at("predictions").replaceChildren(...predictions.map((prediction, position) => {
    const truth = tokenOf(prediction.truth);
    const predicted = prediction.probable.length > 0 ? tokenOf(prediction.probable[0][0]) : null;
    const cell = element("span", { role: "option", id: `prediction-${position}`, class: outcomes[position], "data-index": position });
    cell.append(truth === null ? "–" : tokenElement(truth));
    cell.append(predicted === null ? "–" : tokenElement(predicted, { class: "predicted" }));
    cell.setAttribute("aria-label", `position ${position}, true ${truth === null ? "unknown" : visible(truth)}, predicted ${predicted === null ? "nothing" : visible(predicted)}`);
    return cell;
  }));
  const count = (kind) => outcomes.filter((outcome) => outcome === kind).length;
  const known = count("hit") + count("miss");
  const parts = known > 0 ? [`${count("hit")} of the ${known} tokens that can be known are right`] : [];
  if (count("unknowable") > 0) parts.push(`${count("unknowable")} cannot be known`);
  at("predictions-count").replaceChildren(parts.join("; "));
  at("predictions-legend").replaceChildren(
    element("li", {}, "above the true token, below the likeliest one"),
    ...Object.keys(OUTCOMES).filter((kind) => count(kind) > 0).map((kind) => {
      const square = element("i", { class: "square" });
      square.style.background = kind === "unknowable" ? "var(--shade)" : `var(--${kind})`;
      return element("li", {}, square, OUTCOMES[kind]);
    }));
}

/** Tells the likeliest tokens at the current position. */
function readPrediction() {
  const { predictions } = data.samples[state.sample];
  const box = at("prediction");
  box.hidden = predictions.length === 0;
  if (predictions.length === 0) return;
  const position = Math.min(state.position, predictions.length - 1);
  const prediction = predictions[position];
  const truth = tokenOf(prediction.truth);
  const after = inputToken(state.sample, position);
  Object.assign(box.dataset, {
    sample: state.sample, position, after, truth: truth ?? "", truthProbability: prediction.truth_probability ?? "",
    predicted: prediction.probable.length > 0 ? tokenOf(prediction.probable[0][0]) : "",
    probability: prediction.probable.length > 0 ? prediction.probable[0][1] : "",
  });
  const line = ["after ", tokenElement(after), ` at ${position}`];
  if (truth !== null) line.push(" follows ", tokenElement(truth));
  if (truth !== null && prediction.truth_probability !== null) line.push(`, which the model gave ${fixed(prediction.truth_probability, 4)}`);
  line.push("; its likeliest tokens:");
  box.querySelector(".reading").replaceChildren(...line);
  at("probabilities").replaceChildren(...prediction.probable.map(([id, probability]) =>
    barRow([tokenElement(tokenOf(id))], probability, fixed(probability, 4), id === prediction.truth ? { class: "true" } : {})));
  const list = at("predictions");
  for (const cell of list.children) cell.setAttribute("aria-selected", Number(cell.dataset.index) === position);
  list.setAttribute("aria-activedescendant", `prediction-${position}`);
}

function startPredictions() {
  choosable(at("predictions"), () => state.position, (position) => update({ position }));
}
