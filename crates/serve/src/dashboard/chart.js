// Charts over time: drawn by uPlot, with a legend, and with a summary and a table for readers who cannot see the
// drawing.
//
// Owns: how a series becomes a picture. `show` sets the figures of a chart; the chart itself keeps its position, size
// and colours.
//
// Must not know: where figures come from.

import { NONE, day, el, replace, say, time } from "./text.js";

const uPlot = globalThis.uPlot;
/** All charts share one crosshair: it stands at the same time in each. */
const CURSOR = uPlot.sync("fetchwise");
const HEIGHT = 196;
/** The space right of the axis: half of the longest label, which may stand at its end. */
const RIGHT = 40;
/** The number of empty buckets that a line bridges. */
const BRIDGED = 3;
/** The events that the crosshair names at most. */
const NAMED = 3;
/** A share of fewer requests is mostly chance. */
const LEAST = 5;

const charts = new Set();

/** A custom property of the style sheet, as a colour for a canvas. */
function colour(name) {
  const probe = el("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

function faded(rgb, alpha) {
  const parts = rgb.match(/[\d.]+/g);
  return parts ? `rgba(${parts[0]}, ${parts[1]}, ${parts[2]}, ${alpha})` : rgb;
}

/** Short gaps are bridged (uPlot joins over `undefined`), longer ones stay gaps (`null`). */
function bridge(values) {
  const out = values.map((value) => value ?? null);
  for (let from = 0; from < out.length; from += 1) {
    if (out[from] !== null) continue;
    let to = from;
    while (to < out.length && out[to] === null) to += 1;
    if (from > 0 && to < out.length && to - from <= BRIDGED) out.fill(undefined, from, to);
    from = to;
  }
  return out;
}

/**
 * Joins neighbouring buckets until each group has at least five requests: `counts` are the requests of the buckets. A
 * group that has fewer, because nothing is near, is `thin`.
 */
export function widen(counts) {
  const groups = [];
  let [from, sum, end] = [null, 0, 0];
  const close = () => {
    if (from === null) return;
    const before = groups.at(-1);
    if (sum < LEAST && before && from - before.to <= BRIDGED) {
      before.to = end;
      before.thin &&= before.sum + sum < LEAST;
      before.sum += sum;
    } else {
      groups.push({ from, to: end, sum, thin: sum < LEAST });
    }
    from = null;
  };
  counts.forEach((count, at) => {
    if (count === 0) {
      if (from !== null && at - end >= BRIDGED) close();
      return;
    }
    if (from === null) [from, sum] = [at, 0];
    sum += count;
    end = at + 1;
    if (sum >= LEAST) close();
  });
  close();
  return groups;
}

/** Adds up the figures of each group. */
export const grouped = (values, groups) => groups.map((group) => values.slice(group.from, group.to).reduce((sum, value) => sum + value, 0));

/** Puts each layer on top of those before it. They are drawn from the highest down, so that each shows its own part. */
function stack(layers, asShares) {
  const length = layers[0]?.length ?? 0;
  const sums = Array.from({ length }, (_, at) => layers.reduce((sum, layer) => sum + (layer[at] ?? 0), 0));
  const below = new Array(length).fill(0);
  const tops = layers.map((layer) =>
    layer.map((value, at) => {
      if (sums[at] === 0) return null;
      below[at] += value ?? 0;
      return asShares ? Math.min(1, below[at] / sums[at]) : below[at];
    }),
  );
  return tops.reverse();
}

/** A chart in its own card.
 *
 * `of` has: `title`, `about` (what it shows, in a sentence), `unit(step)` of the vertical axis, `series` (`{name, colour, dash, area}`), `kind` (`lines`, `bars` for
 * amounts on top of each other, `shares` for their parts of a whole), `write` (a figure as text), `range(max)` for the axis, and
 * `summary(values)` in words.
 */
export class Chart {
  constructor(of) {
    this.of = of;
    this.series = of.series;
    this.title = el("h3", {}, of.title);
    this.legend = el("ul", { class: "legend" });
    this.when = el("p", { class: "quiet when" });
    this.unit = el("span", {});
    this.thin = el("p", { class: "quiet thin", hidden: true }, "Pale: fewer than five requests.");
    this.groups = [];
    this.canvas = el("div", { class: "plot", role: "img", "aria-label": of.title });
    this.empty = el("p", { class: "empty" }, "No data in this period yet.");
    this.body = el("tbody");
    this.headRow = el("tr");
    const table = el("table", {}, el("caption", { class: "sr" }, of.title), el("thead", {}, this.headRow), this.body);
    const scroll = el("div", { class: "scroll short", tabindex: "0", role: "group", "aria-label": `${of.title}: figures` }, table);
    this.details = el("details", {}, el("summary", {}, "Figures", el("span", { class: "sr" }, ` of ${of.title}`)), scroll);
    this.details.addEventListener("toggle", () => this.#table());
    this.node = el(
      "article",
      { class: "card chart" },
      this.title,
      el("p", { class: "quiet" }, of.about),
      this.when,
      this.legend,
      el("p", { class: "quiet axes" }, el("span", {}, el("span", { "aria-hidden": "true" }, "\u2191 "), this.unit), el("span", {}, "local time", el("span", { "aria-hidden": "true" }, " \u2192"))),
      el("div", { class: "frame" }, this.canvas, this.empty),
      this.thin,
      this.details,
    );
    this.values = this.series.map(() => []);
    this.times = [];
    this.events = [];
    this.#legend();
    new ResizeObserver(() => this.#fit()).observe(this.canvas);
    charts.add(this);
  }

  /**
   * Shows figures: `times` are the starts of buckets in seconds, `step` seconds apart; each series has a figure or none per
   * group of buckets. Without `groups` each bucket is one. `totals` are the figures of the whole period. `events` (`{at, kind, name}`, at a
   * second) get a thin line each, and the crosshair names them.
   */
  show(times, step, values, { series = this.of.series, groups, totals, events = [] } = {}) {
    const changed = series.map((one) => one.name).join() !== this.series.map((one) => one.name).join();
    this.groups = groups ?? times.map((_, at) => ({ from: at, to: at + 1, thin: false }));
    Object.assign(this, { times, step, values, series, totals, events });
    this.places = new Array(times.length).fill(null);
    this.groups.forEach((group, place) => this.places.fill(place, group.from, group.to));
    if (changed) {
      this.#drop();
      this.#legend();
    }
    const any = this.groups.some((_, place) => this.#happened(place));
    this.empty.hidden = any;
    this.thin.hidden = !this.groups.some((group) => group.thin);
    say(this.unit, this.of.unit(stepName(step)));
    this.canvas.classList.toggle("blank", !any);
    this.canvas.setAttribute("aria-label", any ? `${this.of.title}. ${this.of.summary(values)}${marked(events)}` : `${this.of.title}: no data in this period yet`);
    if (this.plot === undefined) this.#draw();
    else this.plot.setData(this.#data());
    this.#point(this.plot?.cursor.idx ?? null);
    if (this.details.open) this.#table();
  }

  /** Draws the chart again, for other colours. */
  redraw() {
    this.#drop();
    if (this.times.length > 0) this.#draw();
  }

  #drop() {
    this.plot?.destroy();
    this.plot = undefined;
  }

  #data() {
    const { kind } = this.of;
    const spread = this.values.map((layer) => this.places.map((place) => (place === null ? null : layer[place])));
    return [this.times, ...(kind === "lines" ? spread.map(bridge) : stack(spread, kind === "shares"))];
  }

  /** Fades what is drawn of few requests. */
  #fade(plot) {
    const [surface, { ctx, bbox }] = [faded(colour("--surface"), 0.62), plot];
    for (const group of this.groups.filter((group) => group.thin)) {
      const [from, to] = [this.times[group.from], this.times[group.to - 1] + this.step].map((at) => plot.valToPos(at, "x", true));
      ctx.fillStyle = surface;
      ctx.fillRect(Math.max(bbox.left, from), bbox.top, Math.min(bbox.left + bbox.width, to) - Math.max(bbox.left, from), bbox.height);
    }
  }

  /** Draws a thin line for each event; those of pauses are dashed. */
  #mark(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const { at, kind } of this.events) {
      const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = colour(kind === "paused" ? "--bad" : "--quiet");
      ctx.setLineDash(kind === "paused" || kind === "unpaused" ? [3 * devicePixelRatio, 3 * devicePixelRatio] : []);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** The events of some buckets, in words. */
  #happenings(from, to) {
    const names = this.events.filter(({ at }) => at >= this.#start(from) && at < this.#start(to)).map(({ name }) => name);
    const more = names.length > NAMED ? [`${names.length - NAMED} more`] : [];
    return [...names.slice(0, NAMED), ...more].map((name) => ` \u00b7 ${name}`).join("");
  }

  #draw() {
    const width = Math.floor(this.canvas.clientWidth);
    if (width < 50) return;
    const [quiet, grid] = [colour("--quiet"), colour("--grid")];
    const font = `12px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: quiet, font, ticks: { show: false }, grid: { stroke: grid, width: 1 } };
    const lines = this.of.kind === "lines";
    const drawn = lines ? this.series : [...this.series].reverse();
    const bars = uPlot.paths.bars({ size: [0.86, 40], align: 1 });
    this.plot = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [8, RIGHT, 0, 0],
        legend: { show: false },
        cursor: { y: false, sync: { key: CURSOR.key }, points: { show: lines, size: 7 }, drag: { x: false, y: false } },
        scales: {
          x: { time: true, range: () => [this.times[0], this.times[this.times.length - 1] + (lines ? 0 : this.step)] },
          y: { range: (_, __, max) => (this.of.kind === "shares" ? [0, 1] : this.of.range(Number.isFinite(max) ? max : 0)) },
        },
        axes: [
          { ...axis, grid: { show: false }, size: 32, gap: 10, space: 76, values: (_, at, __, ___, apart) => at.map((second) => this.#tick(second, apart)) },
          { ...axis, size: 46, gap: 6, space: 38, values: (_, at) => at.map((value) => this.of.write(value, true)) },
        ],
        series: [
          {},
          ...drawn.map((one) => {
            const stroke = colour(one.colour);
            if (!lines) return { fill: stroke, width: 0, paths: bars, points: { show: false } };
            return {
              stroke,
              width: 2,
              dash: one.dash,
              fill: one.area ? faded(stroke, 0.12) : undefined,
              points: { show: true, size: 4, fill: stroke, width: 0, filter: alone },
            };
          }),
        ],
        hooks: { setCursor: [(plot) => this.#point(plot.cursor.idx)], draw: [(plot) => this.#fade(plot), (plot) => this.#mark(plot)] },
      },
      this.#data(),
      this.canvas,
    );
  }

  #tick(second, apart) {
    const at = second * 1000;
    if (apart < 60) return seconds(at);
    const date = new Date(at);
    return this.step >= 3600 && date.getHours() === 0 && date.getMinutes() === 0 ? day(at).replace(",", "") : time2(at);
  }

  #fit() {
    const width = Math.floor(this.canvas.clientWidth);
    if (this.plot === undefined) {
      if (this.times.length > 0) this.#draw();
    } else if (width >= 50 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  #legend() {
    this.outputs = this.series.map(() => el("span", { class: "value" }));
    replace(
      this.legend,
      this.series.map((one, at) =>
        el("li", {}, el("span", { class: `swatch ${one.colour.slice(2)}${one.dash ? " dashed" : ""}`, "aria-hidden": "true" }), el("span", { class: "name" }, one.name), this.outputs[at]),
      ),
    );
  }

  /** Shows the figures at the crosshair, or those of the whole period. */
  #point(index) {
    const place = index === null || index === undefined ? null : (this.places?.[index] ?? null);
    const isAt = index !== null && index !== undefined;
    const group = place === null ? null : this.groups[place];
    const [from, to] = isAt ? [group?.from ?? index, group?.to ?? index + 1] : [0, this.times.length];
    say(this.when, this.times.length === 0 ? "" : `${this.#span(from, to)}${isAt ? this.#happenings(from, to) : ""}`);
    this.when.classList.toggle("at", isAt);
    this.outputs.forEach((output, at) => {
      let value = null;
      if (place !== null) value = this.of.kind === "shares" ? this.#share(at, place) : this.values[at]?.[place];
      else if (!isAt) value = this.#total(at);
      say(output, value === null || value === undefined ? NONE : this.of.write(value));
    });
  }

  /** A series' figure of the whole period. */
  #total(at) {
    if (this.totals) return this.totals[at];
    const sums = this.values.map((layer) => layer.reduce((sum, value) => sum + (value ?? 0), 0));
    const all = sums.reduce((sum, value) => sum + value, 0);
    if (this.of.kind !== "shares") return sums[at];
    return all === 0 ? null : sums[at] / all;
  }

  /** The time of some buckets, in words. */
  #span(from, to) {
    const write = (bucket) => time(this.#start(bucket) * 1000, { seconds: this.step < 60 });
    return `${write(from)} to ${write(to)}`;
  }

  #start(bucket) {
    return this.times[0] + bucket * this.step;
  }

  #happened(place) {
    return this.values.some((layer) => (this.of.kind === "lines" ? (layer[place] ?? null) !== null : layer[place] > 0));
  }

  #share(layer, place) {
    const sum = this.values.reduce((sum, values) => sum + (values[place] ?? 0), 0);
    return sum === 0 ? null : this.values[layer][place] / sum;
  }

  #table() {
    if (!this.details.open) return;
    replace(this.headRow, el("th", { scope: "col" }, "Time"), this.series.map((one) => el("th", { scope: "col", class: "num" }, one.name)));
    const rows = [];
    for (let at = this.groups.length - 1; at >= 0; at -= 1) {
      if (!this.#happened(at)) continue;
      const cells = this.series.map((_, layer) => {
        const value = this.of.kind === "shares" ? this.#share(layer, at) : this.values[layer][at];
        return el("td", { class: "num" }, value === null || value === undefined ? NONE : this.of.write(value));
      });
      rows.push(el("tr", {}, el("th", { scope: "row" }, this.#span(this.groups[at].from, this.groups[at].to)), cells));
    }
    replace(this.body, rows.length > 0 ? rows : el("tr", {}, el("td", { colspan: this.series.length + 1 }, "No data in this period yet.")));
  }
}

/** What a reader who cannot see the marks needs to know of them. */
function marked(events) {
  if (events.length === 0) return "";
  return `. ${events.length === 1 ? "1 event is" : `${events.length} events are`} marked; the list below the charts names them`;
}

/** The points without a neighbour: without a mark they would be invisible. */
function alone(plot, index) {
  const values = plot.data[index];
  const gap = (near) => near < 0 || near >= values.length || values[near] === null;
  return values.flatMap((value, at) => (value !== null && value !== undefined && gap(at - 1) && gap(at + 1) ? [at] : []));
}

/** The length of a bucket, for "requests per ...". */
function stepName(step) {
  if (step < 60) return `${step} s`;
  if (step === 60) return "minute";
  return step === 3600 ? "hour" : `${step / 60} min`;
}

const seconds = (at) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }).format(new Date(at));
const time2 = (at) => new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" }).format(new Date(at));

/** Draws every chart again. */
export function redrawAll() {
  charts.forEach((chart) => chart.redraw());
}
