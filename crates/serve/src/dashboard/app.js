// The page: requests figures from the server every few seconds and passes them to its parts.
//
// Owns: when the server is polled, what happens when it does not respond, and the forms in dialogs.
//
// Must not know: how a chart or a table is drawn.

import * as address from "./address.js";
import { Refused, get, hasToken, keepToken, post } from "./api.js";
import * as attention from "./attention.js";
import { redrawAll } from "./chart.js";
import * as crawl from "./crawl.js";
import { DomainView } from "./domain.js";
import * as explain from "./explain.js";
import { Overview, eventList, otherwise } from "./overview.js";
import { Parts } from "./parts.js";
import { byId, el, plain, replace, roughly, say, span, time } from "./text.js";

/** The poll interval if the server names none. */
const POLL_MS = 3000;
/** The poll interval of a hidden page. */
const HIDDEN_MS = 60_000;

const overview = new Overview(byId("tiles"), byId("charts"));
const parts = new Parts({ refresh, unpause, host });
const domain = new DomainView({ refresh, unpause, explain: (url, box) => (box ? explain.explainIn(box, url, wantToken) : open({ domain: "", explain: url }, "explain")) });

let [timer, busy, again, failures] = [undefined, false, false, 0];
let [updatedAt, every, skew] = [undefined, POLL_MS, 0];
let [mode, noRollout] = ["learning", false];

/** The server's time: countdowns follow its clock, whatever this machine's clock says. */
const now = () => Date.now() + skew;

// The state of the page is in its address.

/** The state that is shown. */
let shown = { range: "", domain: "", explain: "" };

/** A link that opens a host. */
function host(name) {
  const click = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    open({ domain: name });
  };
  return el("a", { class: "host", href: address.link({ domain: name }), "data-key": `open ${name}`, on: { click } }, el("bdi", {}, name));
}

/** Changes the state, and scrolls to the section `to`. */
function open(change, to) {
  if (address.go(change)) apply();
  if (to) byId(to).scrollIntoView({ block: "start" });
}

/** Shows the state of the address. */
function apply() {
  const next = address.read();
  const before = shown;
  shown = next;
  document.querySelector(`#range input[value="${next.range}"]`).checked = true;
  const isDomain = next.domain !== "";
  document.body.classList.toggle("one-domain", isDomain);
  byId(isDomain ? "domain-head" : "now-head").append(byId("range"));
  document.title = isDomain ? `${plain(next.domain)} \u00b7 fetchwise` : "fetchwise";
  byId("domain-back").setAttribute("href", address.link({ domain: "" }));
  if (isDomain && next.domain !== before.domain) {
    domain.open(next.domain);
    scrollTo(0, 0);
    byId("domain-title").focus({ preventScroll: true });
  }
  if (next.explain !== before.explain) {
    if (next.explain === "") explain.clear();
    else explain.explainUrl(next.explain, wantToken);
  }
  if (next.range !== before.range || next.domain !== before.domain) refresh();
}

/** Requests and shows the open domain. */
async function showDomain(name) {
  if (name === "") return null;
  try {
    const [board, page, links] = await Promise.all([
      get("v1/dashboard/domain", { domain: name, range: shown.range }),
      get("v1/attempts", domain.query()),
      get("v1/links", { domain: name }).catch((failure) => (failure instanceof Refused && failure.status === 422 ? [] : Promise.reject(failure))),
    ]);
    return { name, board, page, links };
  } catch (failure) {
    if (!(failure instanceof Refused) || failure.status === 401) throw failure;
    return { name, failure };
  }
}

async function refresh() {
  clearTimeout(timer);
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  let wait = document.hidden ? HIDDEN_MS : every;
  try {
    const [one, board, hosts, rollout] = await Promise.all([
      showDomain(shown.domain),
      get("v1/dashboard", { range: shown.range, ...parts.query() }),
      get("v1/hosts", { state: "paused" }),
      // If learning serves everything, there is only one arm. Before the first response the mode is unknown, and
      // nothing is missed.
      mode === "learning" || noRollout ? null : get("v1/rollout").catch(missing),
    ]);
    failures = 0;
    skew = Date.parse(board.now) - Date.now();
    every = board.poll_ms ?? POLL_MS;
    if (mode !== board.mode) again = board.mode !== "learning";
    mode = board.mode;
    wait = document.hidden ? HIDDEN_MS : every;
    updatedAt = Date.now();
    crawl.show(board.crawl ?? null, now());
    attention.show(board.attention, now(), host);
    overview.show(board);
    byId("events-card").hidden = board.events.length === 0;
    replace(byId("events"), eventList(board.events));
    const cost = otherwise(board);
    byId("otherwise-card").hidden = cost === null;
    if (cost !== null) replace(byId("otherwise"), cost);
    if (one !== null && one.name === shown.domain) {
      if (one.failure) domain.fail(one.failure.message);
      else domain.show(one.board, one.page, one.links, now(), board.read_only);
    }
    parts.show(board, hosts, rollout, now());
    say(byId("about"), `fetchwise ${board.version ?? ""} \u00b7 updates every ${roughly(every)} \u00b7 up since ${time(board.started_at)}`);
    live("on", "Live");
  } catch (failure) {
    failures += 1;
    if (failure instanceof Refused && failure.status === 401) {
      wantToken(hasToken() ? failure.message : "");
      wait = null;
    } else {
      wait = failure.retryAfterMs ?? Math.min(30_000, every * failures);
      live("off", failure instanceof Refused ? `The server refused the request: ${failure.message}` : "Connection lost, retrying");
    }
  } finally {
    busy = false;
    if (again) {
      again = false;
      wait = 0;
    }
    if (wait !== null) timer = setTimeout(refresh, wait);
    tick();
  }
}

/** An endpoint that the server does not have is not a failure: the page works without it. */
function missing(failure) {
  if (failure instanceof Refused && (failure.status === 404 || failure.status === 405)) {
    noRollout = true;
    return null;
  }
  throw failure;
}

function live(state, text) {
  byId("enter-token").hidden = state !== "shut";
  byId("dot").className = `dot ${state}`;
  document.body.classList.toggle("stale", state !== "on");
  say(byId("status"), text);
}

/** Updates the texts that change between two responses. */
function tick() {
  say(byId("updated"), updatedAt === undefined ? "" : `updated ${Date.now() - updatedAt < 1500 ? "just now" : `${roughly(Date.now() - updatedAt)} ago`}`);
  for (const node of document.querySelectorAll("[data-until]")) {
    const left = Number(node.dataset.until) - now();
    say(node, left > 0 ? span(left) : "a trial is due");
  }
}

// The token.

function wantToken(why = "") {
  live("shut", "Token required");
  say(byId("token-error"), why);
  const dialog = byId("token-dialog");
  if (!dialog.open) dialog.showModal();
  byId("token").focus();
}

byId("enter-token").addEventListener("click", () => wantToken());

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = byId("token");
  if (field.value.trim() === "") return say(byId("token-error"), "Enter a token.");
  keepToken(field.value.trim());
  field.value = "";
  byId("token-dialog").close();
  refresh();
});

// Unpausing a host.

let unpausing = null;

function unpause(host) {
  unpausing = host;
  say(byId("unpause-text"), `fetchwise will request ${host} again immediately. It paused the host because it blocked requests. If the host still blocks, the next pause is longer.`);
  say(byId("unpause-error"), "");
  byId("unpause-dialog").showModal();
  byId("unpause-no").focus();
}

byId("unpause-no").addEventListener("click", () => byId("unpause-dialog").close());

byId("unpause-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const host = unpausing;
  try {
    await post(`v1/hosts/${encodeURIComponent(host)}/unpause`);
    byId("unpause-dialog").close();
    toast(`${host} is unpaused.`);
    byId("paused-title")?.focus();
    refresh();
  } catch (failure) {
    if (failure instanceof Refused && failure.status === 401) {
      byId("unpause-dialog").close();
      return wantToken(failure.message);
    }
    say(byId("unpause-error"), failure instanceof Refused ? `Not unpaused: ${failure.message}` : "Cannot reach the server.");
  }
});

let toasting;

function toast(text) {
  say(byId("said"), text);
  byId("said").classList.add("shown");
  clearTimeout(toasting);
  toasting = setTimeout(() => byId("said").classList.remove("shown"), 6000);
}

// Colours: the system's, unless the reader chooses others.

const theme = byId("theme");

function dress(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  redrawAll();
}

theme.value = localStorage.getItem("fetchwise-theme") ?? "";
if (theme.value !== "") dress(theme.value);
theme.addEventListener("change", () => {
  if (theme.value) localStorage.setItem("fetchwise-theme", theme.value);
  else localStorage.removeItem("fetchwise-theme");
  dress(theme.value);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

byId("range").addEventListener("change", () => open({ range: document.querySelector("#range input:checked").value }));
byId("domain-back").addEventListener("click", (event) => {
  event.preventDefault();
  open({ domain: "" }, "sites");
});
// The sections are on the page of all domains.
for (const anchor of document.querySelectorAll(".places a, #more-alerts")) {
  anchor.addEventListener("click", () => shown.domain !== "" && open({ domain: "" }));
}
addEventListener("popstate", apply);

// The keyboard.

byId("keys").addEventListener("click", () => byId("keys-dialog").showModal());

addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input:not([type=radio]):not([type=checkbox]), select, textarea, dialog") !== null;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "?") byId("keys-dialog").showModal();
  else if (event.key === "/" || event.key === "e") {
    if (shown.domain !== "") open({ domain: "" });
    if (event.key === "e" || !parts.domains.focusSearch()) byId("explain-url").focus();
  } else if (event.key === "Escape" && shown.domain !== "") open({ domain: "" }, "sites");
  else return;
  event.preventDefault();
});

document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(tick, 1000);
explain.start((url) => {
  // The same URL again is explained again.
  if (url !== "" && address.go({ explain: url })) apply();
  else explain.explainUrl(url, wantToken);
});
apply();
