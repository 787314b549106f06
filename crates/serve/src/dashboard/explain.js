// The form that explains a URL: the steps of the decision, a drawing of the evidence, the candidates and the
// counterfactuals.
//
// Owns: how an explanation looks.
//
// Invariant: one request to the server per explanation.
//
// Must not know: how decisions are made.

import { Refused, get } from "./api.js";
import { NONE, byId, el, fixed, percent, plain, rate, replace, roughly, say, svg, time } from "./text.js";

const ROW = 34;
const TOP = 26;
const PAD = 14;
/** The number of colours for fetchers, which are assigned by their position among the candidates. */
const COLOURS = 6;

/** What draws the evidence again at another width, by the element that shows an explanation. */
const drawn = new Map();
/** The number of the last request, by element. */
const asked = new Map();

/** Connects the form; `submitted(url)` is called for each URL that a person enters. */
export function start(submitted) {
  const [form, field] = [byId("explain-form"), byId("explain-url")];
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submitted(field.value.trim());
  });
}

/** Empties the form. */
export function clear() {
  byId("explain-url").value = "";
  say(byId("explain-error"), "");
  byId("explain-url").removeAttribute("aria-invalid");
  drawn.delete(byId("explained"));
  asked.set(byId("explained"), 0);
  replace(byId("explained"));
}

/** Puts a URL into the form and explains it; `refused` is called when the server requires another token. */
export async function explainUrl(url, refused) {
  const [error, field, box] = [byId("explain-error"), byId("explain-url"), byId("explained")];
  field.value = url;
  say(error, "");
  field.removeAttribute("aria-invalid");
  if (url === "") {
    field.setAttribute("aria-invalid", "true");
    say(error, "Enter a URL, such as https://example.org/.");
    return field.focus();
  }
  const failure = await explainIn(box, url, refused, true);
  if (failure === undefined) return;
  field.setAttribute("aria-invalid", "true");
  say(error, failure);
  field.focus();
}

/** Explains a URL in an element. Returns why that failed, if it did. */
export async function explainIn(box, url, refused, isForm = false) {
  const mine = (asked.get(box) ?? 0) + 1;
  asked.set(box, mine);
  box.setAttribute("aria-busy", "true");
  try {
    const answer = await get("v1/explain", { url });
    if (mine === asked.get(box)) show(box, Array.isArray(answer) ? answer[0] : answer, url, isForm);
  } catch (failure) {
    if (mine !== asked.get(box)) return undefined;
    if (failure instanceof Refused && failure.status === 401) refused();
    drawn.delete(box);
    const text = failure instanceof Refused ? `Cannot explain the URL: ${failure.message}` : "Cannot reach the server.";
    replace(box, isForm ? null : el("p", { class: "quiet" }, text));
    return text;
  } finally {
    box.removeAttribute("aria-busy");
  }
  return undefined;
}

const watched = new ResizeObserver((entries) => entries.forEach((entry) => drawn.get(entry.target)?.()));

/** An explanation without the fetchers that are not available. The chosen one stays. */
function withoutAbsent(of) {
  const absent = new Set((of.candidates ?? []).filter((one) => one.available === false && one.fetcher !== of.fetcher).map((one) => one.fetcher));
  const here = (list) => (list ?? []).filter((one) => !absent.has(one.fetcher));
  return {
    ...of,
    steps: here(of.steps),
    candidates: here(of.candidates),
    counterfactuals: here(of.counterfactuals),
    host_showed: (of.host_showed ?? []).map((tag) => ({ ...tag, fetchers: here(tag.fetchers) })),
  };
}

function show(box, explanation, url, isForm) {
  const of = withoutAbsent(explanation);
  const verdict = el(isForm ? "h3" : "h4", { tabindex: "-1", id: isForm ? "verdict" : undefined, class: "verdict" }, ...sentence(of));
  const picture = el("div", { class: "ladder" });
  const steps = of.steps;
  const names = [...new Set([...steps.map((step) => step.fetcher), ...(of.fetcher ? [of.fetcher] : [])])];
  const ordered = of.candidates.map((one) => one.fetcher).filter((name) => names.includes(name));
  names.filter((name) => !ordered.includes(name)).forEach((name) => ordered.push(name));
  const draw = () => replace(picture, ladder(of, ordered, picture.clientWidth));
  if (steps.length > 0) drawn.set(box, draw);
  else drawn.delete(box);
  watched.observe(box);
  replace(
    box,
    el("p", { class: "address" }, of.url ?? url),
    verdict,
    gates(of),
    steps.length > 0
      ? el("section", {}, el("h4", {}, "Evidence, from general to specific"), el("p", { class: "quiet" }, "The chance that each fetcher delivers, as each piece of evidence moved it. The larger a dot, the more attempts stand behind it."), key(ordered, of.fetcher), picture, stepTable(steps))
      : el("p", { class: "empty" }, "No evidence yet: the figures are the initial values of each kind of fetcher."),
    candidateTable(of),
    otherwise(of),
  );
  if (steps.length > 0) draw();
  if (isForm) verdict.focus({ preventScroll: true });
}

/** The decision in one sentence. */
function sentence(of) {
  if (of.fetcher) return [el("strong", {}, of.fetcher), ` goes first: ${LABELS[of.decision] ?? of.decision}`, of.confidence === null ? "" : `, confidence ${fixed(of.confidence)} over ${fixed(of.sample_size, 1)} attempts`, "."];
  if (of.decision === "paused") return ["Not now: ", el("strong", {}, `paused until ${time(of.paused_until, { seconds: true })}`), "."];
  return [el("strong", {}, "No fetcher"), of.rule === "no_viable_fetcher" ? " can pass this host\u2019s bot protection." : " is worth a try."];
}

const LABELS = {
  learned: "learned from attempts",
  inferred: "the best estimate so far",
  explore: "a cheaper fetcher gets a try",
  probe: "a probe, because the evidence is not sufficient yet",
  hard_coded: "the router table names it",
  hinted: "the caller requested it",
};

/** The steps of a decision in their order, and the step that decided. */
function gates(of) {
  const by = of.steps.find((step) => step.deciding);
  const levels = new Set(of.steps.map((step) => `${step.type}=${step.value}`)).size;
  const paused = of.decision === "paused";
  const asked = of.rule === "caller_hint";
  const table = of.decision === "hard_coded";
  const learned = !paused && !asked && !table;
  const list = [
    ["Paused?", paused ? `until ${time(of.paused_until, { seconds: true })}` : "no", paused],
    ["Requested?", asked ? of.fetcher : paused ? NONE : "no", asked],
    ["Mode", table ? `${of.mode}: router table` : of.mode, table],
    ["Evidence", levels === 0 ? "none yet" : by ? `${by.type} ${by.value} decided` : `${levels} kinds`, learned && by !== undefined],
    ["Rule", of.rule_text ?? of.rule, learned && by === undefined],
    ["Decision", of.fetcher ?? (paused ? "wait" : "nobody"), true],
  ];
  const reached = paused ? 0 : asked ? 1 : table ? 2 : 5;
  return el(
    "ol",
    { class: "gates", "aria-label": "Steps of the decision" },
    list.map(([name, text, decisive], at) =>
      el("li", { class: [decisive && "decisive", at > reached && at < 5 && "skipped"].filter(Boolean).join(" ") || undefined },
        el("span", { class: "gate" }, name),
        el("span", { class: "said" }, at > reached && at < 5 ? "not reached" : text))),
  );
}

const shade = (names, name) => `f${names.indexOf(name) % COLOURS}`;

function key(names, chosen) {
  return el("ul", { class: "legend" }, names.map((name) => el("li", {}, el("span", { class: `swatch ${shade(names, name)}`, "aria-hidden": "true" }), el("span", { class: "name" }, name), name === chosen ? el("span", { class: "tag" }, "chosen") : null)));
}

/** Draws how the evidence moved each fetcher's chance, from top to bottom. */
function ladder(of, names, width) {
  const levels = [];
  for (const step of of.steps) {
    const last = levels.at(-1);
    if (last && last.type === step.type && last.value === step.value) last.steps.push(step);
    else levels.push({ type: step.type, value: step.value, steps: [step] });
  }
  const narrow = width < 560;
  const row = narrow ? ROW + 14 : ROW;
  const left = narrow ? 12 : Math.min(260, width * 0.3);
  const right = 16;
  const height = TOP + (levels.length + 1) * row + PAD;
  const x = (share) => left + Math.min(1, Math.max(0, share)) * (width - left - right);
  const y = (level) => TOP + level * row + (narrow ? 24 : 12);
  const parts = [];
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(svg("line", { class: "grid", x1: x(share), x2: x(share), y1: TOP - 4, y2: height - PAD }));
    const anchor = share === 0 && narrow ? "start" : share === 1 ? "end" : "middle";
    parts.push(svg("text", { class: "axis", x: x(share), y: 14, "text-anchor": anchor }, `${share * 100} %`));
  }
  const label = (at, type, value) => {
    const room = Math.max(8, Math.floor((narrow ? width - 20 : left - 14) / 6.6) - type.length - 1);
    const shown = [...plain(value)];
    const text = shown.length > room ? `${shown.slice(0, room - 1).join("")}\u2026` : shown.join("");
    return svg("text", { class: "level", x: narrow ? 10 : left - 12, y: narrow ? y(at) - 12 : y(at) + 4, "text-anchor": narrow ? "start" : "end" }, svg("tspan", { class: "kind" }, type), " ", text);
  };
  parts.push(label(0, "initial", ""));
  levels.forEach((level, at) => parts.push(label(at + 1, level.type, level.type === "global" ? "" : level.value)));
  for (const name of [...names].sort((a, b) => (a === of.fetcher) - (b === of.fetcher))) {
    const first = of.steps.find((step) => step.fetcher === name);
    const candidate = of.candidates.find((one) => one.fetcher === name);
    if (first === undefined) continue;
    let chance = first.p_before;
    const dots = [[chance, 0, 2.5, false]];
    const line = [[x(chance), y(0)]];
    levels.forEach((level, at) => {
      const step = level.steps.find((one) => one.fetcher === name);
      if (step !== undefined) {
        chance = step.p_after;
        dots.push([chance, at + 1, 3 + Math.min(5, Math.sqrt(Math.max(0, step.total)) * 0.9), step.deciding]);
      }
      line.push([x(chance), y(at + 1)]);
    });
    const chosen = name === of.fetcher ? " chosen" : "";
    const dim = candidate && (candidate.excluded || candidate.available === false || candidate.open) ? " dim" : "";
    parts.push(svg("polyline", { class: `way ${shade(names, name)}${chosen}${dim}`, points: line.map((point) => point.map((n) => n.toFixed(1)).join(",")).join(" ") }));
    for (const [share, level, radius, deciding] of dots) {
      if (deciding) parts.push(svg("circle", { class: "ring", cx: x(share), cy: y(level), r: radius + 5 }));
      parts.push(svg("circle", { class: `dot ${shade(names, name)}${chosen}${dim}`, cx: x(share), cy: y(level), r: radius }, svg("title", {}, `${name}: ${percent(share)}`)));
    }
  }
  const ends = names.map((name) => { const last = of.steps.filter((step) => step.fetcher === name).at(-1); return last ? `${name} ${percent(last.p_after)}` : null; }).filter(Boolean);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Chance of success after all evidence: ${ends.join(", ")}. The table below has each step.` }, parts);
}

function stepTable(steps) {
  const heads = [["Evidence", 0], ["Fetcher", 0], ["Successes", 1], ["Attempts", 1], ["Blocked", 1], ["Chance before", 1], ["after", 1]];
  const rows = steps.map((step) =>
    el("tr", { class: step.deciding && "deciding" },
      el("th", { scope: "row" }, el("span", { class: "kind" }, step.type), " ", step.value, step.deciding ? el("span", { class: "tag" }, "decided") : null),
      el("td", {}, step.fetcher),
      [step.success, step.total, step.blocked].map((value) => el("td", { class: "num" }, fixed(value, 1))),
      [step.p_before, step.p_after].map((value) => el("td", { class: "num" }, percent(value)))));
  return el("details", {}, el("summary", {}, `Each step (${steps.length})`), scroll("Each step of the evidence", heads, rows));
}

function scroll(title, heads, rows) {
  const head = heads.map(([name, num]) => el("th", { scope: "col", class: num ? "num" : undefined }, name));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, el("table", {}, el("caption", { class: "sr" }, title), el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)));
}

function candidateTable(of) {
  const list = of.candidates;
  if (list.length === 0) return null;
  const heads = [["Candidate", 0], ["Cost per request", 1], ["Delivers", 1], ["Blocked", 1], ["Index", 1], ["Confidence", 1], ["Attempts", 1], ["Remarks", 0]];
  const rows = list.map((one) => {
    const remarks = [[one.chosen, "chosen"], [one.confident, "confident"], [one.measured, "cost measured"], [one.open, "breaker open"], [one.excluded && one.available !== false, "tried already"], [one.available === false, "not available"]];
    return el("tr", { class: one.chosen ? "deciding" : one.available === false || one.open ? "dim" : undefined },
      el("th", { scope: "row" }, one.fetcher),
      el("td", { class: "num" }, fixed(one.cost, 1)),
      el("td", { class: "num" }, percent(one.p)),
      el("td", { class: "num" }, percent(one.b)),
      el("td", { class: "num" }, one.index < 0 ? "not worth it" : fixed(one.index, 1)),
      el("td", { class: "num" }, fixed(one.confidence)),
      el("td", { class: "num" }, fixed(one.sample_size, 1)),
      el("td", {}, el("span", { class: "tags" }, remarks.filter(([is]) => is).map(([, word]) => el("span", { class: "tag" }, word)))));
  });
  return el("section", {}, el("h4", {}, "The candidates"), el("p", { class: "quiet" }, "Costs are in plain requests. The index weighs the chance of a page against what trying costs; the highest goes first."), scroll("The candidates", heads, rows));
}

/** Describes counterfactuals, host signals and the host's pace in sentences. */
function otherwise(of) {
  const lines = [];
  for (const one of of.counterfactuals) {
    if (one.kind === "without_domain_evidence") {
      lines.push(`Without evidence about this domain: ${one.fetcher ?? "no fetcher"}${one.p === null ? "" : ` (${one.decision}, ${percent(one.p)} to deliver)`}.`);
    } else if (one.kind === "cheapest_alternative") {
      const cost = (value) => (value < 1000 ? fixed(value, 1) : "over 1000");
      lines.push(`The cheapest alternative is ${one.fetcher}, ${fixed(one.cost, 1)} a request${one.open ? ", its breaker is open" : ""}: a page would cost ${cost(one.expected_cost)} on average, against ${cost(one.expected_cost_chosen)}.`);
    }
  }
  for (const tag of of.host_showed) {
    for (const by of tag.fetchers) {
      lines.push(`The host showed ${tag.tag} (last on ${tag.last_shown}): on ${by.hosts} such hosts ${by.fetcher} ${tag.vendor ? "got past it" : "delivered"} in ${percent(by.success_rate)} of ${fixed(by.attempts, 0)} attempts.`);
    }
  }
  if (of.pace) {
    const pace = of.pace;
    lines.push(`The host accepts ${rate(pace.rate)}, ${pace.parallel} in parallel${pace.limit === null ? "; no limit met so far" : `; a limit was met at ${rate(pace.limit)}`}${pace.latency_s === null ? "" : `; it responds in ${roughly(pace.latency_s * 1000)}`}.`);
  }
  if (of.unavailable_fetcher) lines.unshift(`${of.unavailable_fetcher} is preferred but not available: ${of.unavailable_reason ?? ""}`);
  if (of.shadow_fetcher) lines.unshift(`The other arm would have selected ${of.shadow_fetcher}.`);
  const known = (of.heuristics ?? []).map((one) => el("li", {}, el("span", { class: "kind" }, one.type), " ", one.value));
  return el("section", {},
    lines.length > 0 ? [el("h4", {}, "Further details"), el("ul", { class: "lines" }, lines.map((line) => el("li", {}, line)))] : null,
    known.length > 0 ? [el("h4", {}, "Heuristics of the URL"), el("ul", { class: "shown" }, known)] : null);
}
