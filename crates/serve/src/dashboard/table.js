// Tables that are sorted by their heads and searched.
//
// Owns: rows, order and search of a table. If there are too many rows for the page, `fetchRows` lets the server sort
// and search.
//
// Must not know: what is in a cell.

import { count, el, replace, say } from "./text.js";

/** The number of rows at first, and the number that each click on "Show more" adds. */
const PAGE = 15;

/**
 * `columns`: `{key, name, cell(row), value(row), num, start}`; `start` is the order of a first click (`asc` or `desc`). `search`
 * names what is searched for, and `text(row)` is what is searched in. `remote(query)` is called in place of sorting here. `brief` makes two lines of a row on a narrow screen, of the columns with `brief`: their place, `a` to
 * `e`, and the unit there.
 */
export class Table {
  constructor({ title, columns, by, order, search, text, remote, empty, key, brief }) {
    Object.assign(this, { columns, by, order, text, remote, empty, key, rows: [], shown: PAGE, needle: "" });
    this.total = 0;
    this.caption = el("caption", { class: "sr" }, title);
    this.heads = columns.map((column) => this.#head(column));
    // Roles are explicit, because a narrow screen shows rows as cards, and browsers drop the roles of a table with
    // another layout.
    this.body = el("tbody", { role: "rowgroup" });
    const heads = el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, this.heads));
    this.table = el("table", { class: brief ? "cards brief" : "cards", role: "table" }, this.caption, heads, this.body);
    this.found = el("p", { class: "quiet found" });
    this.live = el("p", { class: "sr", role: "status" });
    this.more = el("button", { type: "button", class: "more", on: { click: () => this.#page() } });
    this.none = el("p", { class: "empty", hidden: true });
    const id = `search-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
    this.field =
      search &&
      el("input", { id, type: "search", autocomplete: "off", spellcheck: "false", placeholder: search, on: { input: () => this.#search() } });
    this.bar = search && el("div", { class: "bar" }, el("label", { for: id, class: "sr" }, search), this.field, this.found);
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": title }, this.table);
    this.nodes = [this.bar, this.scroll, this.none, this.more, this.live].filter(Boolean);
    this.#mark();
  }

  /** The query parameters for a server that sorts and searches. */
  query() {
    return { by: this.by, order: this.order, needle: this.needle, limit: this.shown };
  }

  /** Shows rows; `total` is how many there are without a search, `matching` with it. */
  show(rows, { total = rows.length, matching } = {}) {
    // An unchanged table keeps its nodes, and with them the selection and the position of the pointer.
    const image = JSON.stringify([rows, total, matching, this.query()]);
    if (image === this.image) return;
    this.image = image;
    Object.assign(this, { rows, total, matching });
    this.#draw();
  }

  #head(column) {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const button = el("button", { type: "button", on: { click: () => this.#sort(column) } }, column.name, arrow);
    const plain = column.value === undefined;
    return el("th", { role: "columnheader", scope: "col", class: [column.num && "num", plain && "fixed"].filter(Boolean).join(" ") || undefined, title: column.about }, plain ? (column.hidden ? el("span", { class: "sr" }, column.name) : column.name) : button);
  }

  #mark() {
    this.columns.forEach((column, at) => {
      if (column.value === undefined) return;
      const on = column.key === this.by;
      this.heads[at].setAttribute("aria-sort", on ? (this.order === "asc" ? "ascending" : "descending") : "none");
    });
  }

  #sort(column) {
    const first = column.start ?? (column.num ? "desc" : "asc");
    this.order = this.by !== column.key ? first : this.order === "asc" ? "desc" : "asc";
    this.by = column.key;
    this.#mark();
    this.#again(`sorted by ${column.name}, ${this.order === "asc" ? "ascending" : "descending"}`);
  }

  #search() {
    this.needle = this.field.value.trim().toLowerCase();
    this.shown = PAGE;
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#again(), this.remote ? 200 : 0);
  }

  /** Puts the focus into the search field; returns whether there is one. */
  focusSearch() {
    if (!this.field || this.bar.hidden) return false;
    this.field.focus();
    this.field.scrollIntoView({ block: "center" });
    return true;
  }

  #page() {
    this.shown += 4 * PAGE;
    this.#again();
  }

  #again(said) {
    if (said) say(this.live, said);
    if (this.remote) this.remote();
    else this.#draw();
  }

  #chosen() {
    if (this.remote) return this.rows;
    const column = this.columns.find((one) => one.key === this.by);
    const rows = this.needle === "" ? [...this.rows] : this.rows.filter((row) => this.text(row).toLowerCase().includes(this.needle));
    const sign = this.order === "asc" ? 1 : -1;
    const known = (value) => value !== null && value !== undefined;
    rows.sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      // Unknown values come last in either order.
      if (!known(x) || !known(y)) return known(y) - known(x);
      return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
    });
    return rows;
  }

  #draw() {
    const chosen = this.#chosen();
    const matching = this.remote ? this.matching ?? chosen.length : chosen.length;
    const rows = chosen.slice(0, this.shown);
    replace(
      this.body,
      rows.map((row) =>
        el("tr", { role: "row" }, this.columns.map((column, at) => {
          const named = at === 0 ? { role: "rowheader", scope: "row" } : { role: "cell", "data-label": column.hidden ? "" : column.name, "data-brief": column.brief?.[1] };
          return el(at === 0 ? "th" : "td", { ...named, class: [column.num && "num", column.class, column.brief && `brief-${column.brief[0]}`].filter(Boolean).join(" ") || undefined }, column.cell(row));
        })),
      ),
    );
    const left = matching - rows.length;
    this.more.hidden = left <= 0;
    say(this.more, `Show more (${count(left)} left)`);
    say(this.none, this.total === 0 ? this.empty : `Nothing matches \u201c${this.needle}\u201d.`);
    this.none.hidden = rows.length > 0;
    this.scroll.hidden = rows.length === 0;
    if (this.bar) {
      this.bar.hidden = this.total === 0;
      say(this.found, this.needle === "" ? `${count(this.total)} in total` : `${count(matching)} of ${count(this.total)}`);
      if (this.needle !== "") say(this.live, `${matching} found`);
    }
  }
}

/** Returns a share as a bar with its figure. */
export function meter(share, text, tone) {
  if (share === null || share === undefined) return text;
  const width = Math.round(Math.min(1, Math.max(0, share)) * 100);
  const bar = el("span", { class: `meter ${tone}`, "aria-hidden": "true" }, el("span", { class: "fill" }));
  bar.firstChild.style.width = `${width}%`;
  return el("span", { class: "metered" }, bar, el("span", {}, text));
}
