/* The list of rows, and which of them is shown. */
truetune.parts.entries = (view) => {
  const { make, number, many, spelling, boxes } = truetune, { one, all, store, at, say } = view;
  const place = ({ row, title }) => (row === null ? spelling.visible(title ?? "a line").split(", placed by ")[0] : `row ${number(row)}`);
  const failed = (error) => say(`the rows can't be read: ${error.message}`);
  let timer = 0;

  /* So many characters of a row's text at most: a line of the list shows some thirty. */
  const PREVIEW = 120, PREVIEWED = ["user", "text", "assistant"];

  /* The beginning of what the user says, else of the text or the answer. */
  function preview(row) {
    const letters = PREVIEWED.map((key) => String.fromCharCode(97 + view.sources.findIndex((source) => source.key === key)));
    const first = letters.map((letter) => row.source.indexOf(letter)).find((i) => i >= 0) ?? -1;
    if (first < 0) return "";
    let last = first, length = 0;
    while (row.source[last] === row.source[first] && length < PREVIEW) length += row.pieces[last++].length;
    return spelling.visible(spelling.whole(row.pieces.slice(first, last)).join("").trim().replace(/\s+/gu, " "));
  }

  const list = truetune.list(one(".list"), 64, (position) => {
    const k = view.listedAt(position), rows = store.at(k), row = rows?.[0];
    if (!rows) later();
    const where = { "aria-selected": String(k === at.k), "aria-setsize": view.listed(), "aria-posinset": position + 1 };
    return make("div", { role: "option", class: "entry", id: `entry-${k}`, "data-k": k, ...where },
      make("b", {}, row ? place(row) : `row ${number(k)}`),
      ...(row ? view.marks.drawn(row) : []),
      row?.error && !view.marks.on(row).length ? make("span", { class: "noted" }, " ● invalid") : null,
      rows?.length > 1 ? ` · ${rows.length} ${row.turn === null ? "sides" : "turns"}` : null,
      make("span", { class: "place" }, rows?.length ? counted(rows) : ""),
      make("span", { class: "preview" }, row ? preview(row) : ""));
  });

  /* The tokens of all examples of an entry. */
  function counted(rows) {
    const tokens = rows.reduce((sum, { ids }) => sum + ids.length, 0), learned = rows.reduce((sum, one) => sum + boxes.learned(one), 0);
    return `${many(tokens, "token")}, ${number(learned)} supervised`;
  }

  /* Loads the entries in view, once scrolling rests. */
  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (const { dataset } of all(".entry")) if (!store.at(Number(dataset.k))) store.load(Number(dataset.k), true, view.isFiltered()).catch(failed);
    }, 60);
  }

  /* Of an entry's rows the one that is asked for: itself, or by its side and turn. */
  function asked(rows, { row, side, turn }) {
    const fit = (other) => 2 * Boolean(side && other.title === side) + (other.turn !== null && other.turn === turn);
    return row ?? rows.reduce((best, other) => (fit(other) > fit(best) ? other : best));
  }

  async function choose(k, token = 0, wanted = {}) {
    if (k < 0 || k >= store.end) return;
    const before = at.k;
    at.k = k;
    list.reveal(view.position(k));
    const rows = store.at(k) ?? await store.load(k, false, view.isFiltered()).catch(failed);
    if (at.k !== k) return;
    if (k >= store.end) at.k = before;
    if (!rows?.length) return rows && say(`row ${number(k)} has no tokens`);
    const row = asked(rows, wanted);
    one("[data-jump]").value = row.row ?? k;
    view.show(row, token);
  }
  return { list, place, failed, choose };
};
