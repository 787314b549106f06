// The state of the page in its address: range, open domain and explained URL. Back works, and a link can be sent.
//
// Owns: the names of the parameters.
//
// Must not know: what is shown for them.

const RANGES = ["15m", "hour", "day", "week"];
const DEFAULT_RANGE = "hour";

/** The state that the address has now. */
export function read() {
  const query = new URLSearchParams(location.search);
  const range = query.get("range");
  return {
    range: RANGES.includes(range) ? range : DEFAULT_RANGE,
    domain: query.get("domain") ?? "",
    explain: query.get("explain") ?? "",
  };
}

/** The address of the present state with some changes. */
export function link(change) {
  const state = { ...read(), ...change };
  const query = new URLSearchParams();
  if (state.range !== DEFAULT_RANGE) query.set("range", state.range);
  if (state.domain !== "") query.set("domain", state.domain);
  if (state.explain !== "") query.set("explain", state.explain);
  const text = query.toString();
  return text === "" ? location.pathname : `${location.pathname}?${text}`;
}

/** Changes the state, as a new entry of the history. Returns whether anything changed. */
export function go(change) {
  const next = link(change);
  if (next === `${location.pathname}${location.search}`) return false;
  history.pushState(null, "", next);
  return true;
}
