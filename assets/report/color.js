// The colours of attention weights, and the scale that all heads of a sequence share.

const points = data.colors.map((code) => [1, 3, 5].map((from) => parseInt(code.slice(from, from + 2), 16)));

/** Red, green and blue at a fraction of the scale. */
function color(fraction) {
  const place = Math.min(Math.max(fraction, 0), 1) * (points.length - 1);
  const below = Math.min(Math.floor(place), points.length - 2);
  return points[below].map((from, channel) => Math.round(from + (points[below + 1][channel] - from) * (place - below)));
}

/** The colour of a layer's lines: neither the darkest nor the brightest, which some ground would hide. */
function layerColor(layer) {
  const dark = matches("dark");
  const share = data.layers.length > 1 ? layer / (data.layers.length - 1) : 0.4;
  return `rgb(${color((dark ? 0.35 : 0.12) + share * (dark ? 0.6 : 0.7)).join(",")})`;
}

/** Whether the page is drawn light or dark. */
function matches(theme) {
  const set = document.documentElement.dataset.theme;
  return (set ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === theme;
}

/** Lets the button `theme` go round the themes, and redraws whenever the theme changes, by it or by the system. */
function followTheme(redraw) {
  at("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    at("theme").replaceChildren({ light: "Light", dark: "Dark" }[next] ?? "Auto");
    at("theme").setAttribute("aria-label", `Colours: ${next ?? "as the system has them"}`);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Redraws whenever the page becomes wider or narrower. */
function followWidth(redraw) {
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) redraw();
    width = document.body.clientWidth;
  }).observe(document.body);
}

/** A colour of the theme, by its name in the style sheet. */
const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The least round number that is not below a value. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((factor) => factor * power >= value * 0.9999);
  return Number((factor * power).toPrecision(3));
}

/**
 * The weight of the last colour, the same for all heads of a sequence: the largest one of most
 * later queries. The first ones have few keys to choose from, and the very first always weighs 1.
 */
function scaleTop(sample) {
  const map = maps(sample);
  if (map.top === null) {
    let typical = 0;
    data.layers.forEach((heads, layer) => {
      for (let head = 0; head < heads; head++) {
        const largest = [];
        for (let query = Math.floor(map.time / 2); query < map.time; query++) {
          let most = 0;
          for (let key = 0; key < map.time; key++) most = Math.max(most, map.weight(layer, head, query, key) ?? 0);
          largest.push(most);
        }
        largest.sort((a, b) => a - b);
        typical = Math.max(typical, largest[Math.min(Math.floor((largest.length * 19) / 20), largest.length - 1)]);
      }
    });
    map.top = typical > 0.5 ? 1 : roundUp(typical);
  }
  return map.top;
}

/** The colours of the scale as pixels, finely enough that no step is seen. */
const palette = new Uint32Array(1024).map((_, i, all) => {
  const [red, green, blue] = color(i / (all.length - 1));
  return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
});

/** A head's map as a picture of one pixel a cell, transparent where a query sees nothing. */
function mapImage(sample, layer, head) {
  const { time, weight } = maps(sample);
  const finest = (palette.length - 1) / scaleTop(sample);
  const image = new ImageData(time, time);
  const pixels = new Uint32Array(image.data.buffer);
  for (let query = 0; query < time; query++) {
    for (let key = 0; key < time; key++) {
      const value = weight(layer, head, query, key);
      if (value !== null) pixels[query * time + key] = palette[Math.min(Math.round(value * finest), palette.length - 1)];
    }
  }
  const canvas = element("canvas", { width: time, height: time });
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
