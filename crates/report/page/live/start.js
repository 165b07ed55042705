// Starts the live part of the page, or gives the reason why the page has no model.

async function startLive() {
  startExplain();
  at("model-missing").hidden = !data.model_missing;
  at("model-missing").replaceChildren(data.model_missing ?? "");
  if (!live) return;
  at("help").hidden = false;
  at("model-precision").hidden = data.model.precision === "f32";
  let isFirst = true;
  startTry();
  startGenerate();
  startIntervene();
  startWeight();
  startStrips();
  startFlow();
  startCircuit();
  startPatching();
  startAddress();
  startTour();
  refusalViews.push(markRefused);
  answerViews.push(() => {
    if (isFirst) {
      for (const id of ["sample", "predicted-sample"]) at(id).append(element("option", { value: TYPED_SAMPLE }, "your input"));
    }
    // Show answers to the user's input, but not the answer to the initial input.
    if (state.sample === TYPED_SAMPLE || !isFirst) showTyped();
    else drawCandidates();
    isFirst = false;
    drawChanges();
    drawIntervene();
    markChanged();
    markChip();
    glow();
  });
  views.push([["sample"], computeMaps]);
  await computeMaps();
  if (await restoreAddress()) return;
  const first = data.starts[0];
  const tokens = first?.tokens ?? [0];
  input = { ...input, tokens, source: first?.source ?? null };
  for (const view of inputViews) view({ typing: false });
  await compute();
}
