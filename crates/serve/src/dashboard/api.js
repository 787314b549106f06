// Requests to the server that served the page, and to no other.
//
// Owns: the token. It is in this tab's session storage and in no address.
//
// Must not know: what is shown.

const KEY = "fetchwise-token";
/** The longest time to wait for a response. */
const PATIENCE_MS = 10_000;

/** An error response: its status and the server's message. */
export class Refused extends Error {
  constructor(status, message, retryAfterMs) {
    super(message);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Keeps a token for this tab; without one, forgets it. */
export function keepToken(token) {
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

function complaint(status, body) {
  try {
    const said = JSON.parse(body);
    const text = typeof said.error === "string" ? said.error : said.error?.message ?? said.message ?? said.detail;
    if (typeof text === "string" && text !== "") return text;
  } catch {
    // Not JSON: the text of a proxy in between does not help the reader.
  }
  return `the server responded with status ${status}`;
}

async function ask(method, path, query, body) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const headers = { accept: "application/json" };
  const token = sessionStorage.getItem(KEY);
  if (token !== null) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(url, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  const text = await answer.text();
  if (!answer.ok) {
    const wait = Number(answer.headers.get("retry-after"));
    throw new Refused(answer.status, complaint(answer.status, text), wait > 0 ? wait * 1000 : undefined);
  }
  return text === "" ? null : JSON.parse(text);
}

/** Requests JSON. */
export const get = (path, query) => ask("GET", path, query);

/** Sends JSON. */
export const post = (path, body) => ask("POST", path, undefined, body ?? {});
