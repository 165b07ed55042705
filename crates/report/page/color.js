// The colours of the theme, of attention weights and of layers.

/** Returns the red, green and blue channels of `#rrggbb`. */
const channels = (code) => [1, 3, 5].map((from) => parseInt(code.slice(from, from + 2), 16));
/** The control points of the colour scale for attention weights. */
const points = data.colors.map((code) => channels(code));

/** Returns the red, green and blue channels at a fraction of the colour scale. */
function color(fraction) {
  const position = Math.min(Math.max(fraction, 0), 1) * (points.length - 1);
  const below = Math.min(Math.floor(position), points.length - 2);
  return points[below].map((from, channel) => Math.round(from + (points[below + 1][channel] - from) * (position - below)));
}

/** Returns the relative luminance of a colour, as defined by WCAG. */
function luminance(rgb) {
  const linear = rgb.map((channel) => (channel <= 10 ? channel / 255 / 12.92 : ((channel / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

/** Returns the contrast ratio of two colours, as defined by WCAG. */
function contrast(a, b) {
  const [low, high] = [luminance(a), luminance(b)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** Interpolates linearly from `from` to `to`. */
const mix = (from, to, share) => from.map((channel, i) => Math.round(channel + (to[i] - channel) * share));

/**
 * Returns the colour of a signed value from -1 to 1: vermilion for negative, blue for positive, the background colour for
 * 0.
 */
const differenceColor = (share) => mix(channels(themed("paper")), channels(themed(share < 0 ? "vermilion" : "blue")), Math.min(Math.abs(share), 1));

/** Returns the colour of a layer's lines, moved away from the background until the contrast suffices. */
function layerColor(layer) {
  const paper = channels(themed("paper"));
  const away = hasTheme("dark") ? [255, 255, 255] : [0, 0, 0];
  const share = data.layers.length > 1 ? layer / (data.layers.length - 1) : 0.4;
  const start = color(0.1 + share * 0.8);
  let moved = 0;
  while (contrast(mix(start, away, moved), paper) < 3.1) moved += 0.02;
  return `rgb(${mix(start, away, moved).join(",")})`;
}

/** Returns true if the page is drawn in the given theme, `light` or `dark`. */
function hasTheme(theme) {
  const { theme: chosen, printed } = document.documentElement.dataset;
  if (printed) return theme === "light";
  return (chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === theme;
}

/** Keeps a text until the page is reloaded, where the browser allows it. */
function keep(name, text) {
  try {
    sessionStorage.setItem(`${location.pathname} ${name}`, text);
  } catch { /* a frame without an origin */ }
}

/** Returns a kept text after a reload, or after another kind of navigation; null otherwise. */
function kept(name, navigations = ["reload"]) {
  try {
    const [navigation] = /** @type {any[]} */ (performance.getEntriesByType("navigation"));
    return navigations.includes(navigation?.type) ? sessionStorage.getItem(`${location.pathname} ${name}`) : null;
  } catch {
    return null;
  }
}

/**
 * Makes the button `theme` switch between the themes. Redraws when the button, the system or printing changes the
 * theme.
 */
function followTheme(drawTheme) {
  const redraw = () => {
    themeColors.clear();
    drawTheme();
  };
  const root = document.documentElement;
  const choose = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    const name = { light: "Light", dark: "Dark" }[theme] ?? "Auto";
    at("theme").replaceChildren(name);
    at("theme").setAttribute("aria-label", theme ? `${name} colours` : `${name}: colours of the system`);
    keep("theme", theme ?? "");
  };
  choose(kept("theme") || undefined);
  at("theme").addEventListener("click", () => {
    choose({ undefined: "light", light: "dark", dark: undefined }[root.dataset.theme]);
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.printed = "true";
    redraw();
  });
  window.addEventListener("afterprint", () => {
    delete document.documentElement.dataset.printed;
    redraw();
  });
}

/** Redraws whenever the width of the page changes. */
function followWidth(redraw) {
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth !== width) redraw();
    width = document.body.clientWidth;
  }).observe(document.body);
}

/** Returns a colour of the theme by its name in the style sheet. */
function themed(name) {
  if (!themeColors.has(name)) themeColors.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return themeColors.get(name);
}
/** The colours of the theme that were read since it changed, because reading one computes the styles of the page. */
const themeColors = new Map();

/** Rounds a value up to the next round number. */
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  const factor = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((factor) => factor * power >= value * 0.9999);
  return Number((factor * power).toPrecision(3));
}
