// The page: requests figures from the server every few seconds and passes them to its parts.
//
// Owns: when the server is polled, what happens when it does not respond, and the forms in dialogs.
//
// Must not know: how a chart or a table is drawn.

import { Refused, get, hasToken, keepToken, post } from "./api.js";
import { redrawAll } from "./chart.js";
import * as explain from "./explain.js";
import { Overview } from "./overview.js";
import { Parts } from "./parts.js";
import { byId, count, roughly, say, span, time } from "./text.js";

/** The poll interval if the server names none. */
const POLL_MS = 5000;
/** The poll interval of a hidden page. */
const HIDDEN_MS = 60_000;

const overview = new Overview(byId("tiles"), byId("charts"));
const parts = new Parts({ refresh, unpause, explain: (url) => explain.explainUrl(url, wantToken) });

let [timer, busy, again, failures] = [undefined, false, false, 0];
let [updatedAt, every, skew] = [undefined, POLL_MS, 0];
let [mode, noRollout] = ["learning", false];

/** The server's time: countdowns follow its clock, whatever this machine's clock says. */
const now = () => Date.now() + skew;

function range() {
  return document.querySelector("#range input:checked").value;
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
    const [board, hosts, rollout] = await Promise.all([
      get("v1/dashboard", { range: range(), ...parts.query() }),
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
    overview.show(board);
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

byId("range").addEventListener("change", refresh);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
setInterval(tick, 1000);
explain.start(() => wantToken());
refresh();
