/* The row that is shown, alone or beside its clean copy. */
truetune.parts.stage = (view) => {
  const { make, number, many, spelling, boxes } = truetune, { one, store, sources, at, off, panes, say, switched } = view;

  function look(row) {
    const tests = [];
    if (switched("supervised")) tests.push((i) => boxes.supervised(row, i));
    if (switched("wrong")) tests.push((i) => boxes.wrong(row, i));
    if (off.size) tests.push((i) => !off.has(boxes.source(row, i, sources).key));
    const keep = tests.length ? (i) => tests.every((test) => test(i)) : null;
    return { sources, text: switched("text"), ids: switched("ids"), loss: switched("loss"), keep };
  }

  function twinOf(row) {
    if (row.twin || !row.expected?.length || row.expected === row.supervised) return row.twin;
    return { ...row, supervised: row.expected, expected: undefined, losses: undefined };
  }

  function pane(row, title, differs) {
    const target = make("div", {
      class: "tokens", role: "listbox", "aria-label": `Tokens of ${view.place(row)}${title && `, ${title}`}`,
      "aria-orientation": "horizontal", dir: switched("text") ? "auto" : "ltr",
    });
    panes.push({ row, target, places: spelling.places(row), spans: boxes.draw(target, row, { ...look(row), differs }) });
    return make("div", {}, title ? make("p", { class: "side" }, title) : null, target);
  }

  function pair(row, twin) {
    const differs = boxes.differing(row, twin), count = differs[0].reduce((sum, mark) => sum + mark, 0);
    const title = row.twin ? spelling.visible(row.twin_name ?? "clean copy") : "as the inference contract wants it";
    one(".both").replaceChildren(pane(row, "as it is", differs[0]), pane(twin, title, differs[1]));
    panes[1].spans.find(Boolean)?.setAttribute("tabindex", 0);
    panes.forEach(({ target }, n) => target.addEventListener("scroll", () => { panes[1 - n].target.scrollTop = target.scrollTop; }));
    say(`${many(count, "token")} ${count === 1 ? "differs" : "differ"}`);
  }

  function draw() {
    const twin = switched("twin") ? twinOf(at.row) : null;
    panes.length = 0;
    if (twin) pair(at.row, twin); else one(".both").replaceChildren(pane(at.row, ""));
    const first = panes[0].spans[at.token] ?? panes[0].spans.find(Boolean);
    if (first) { view.select(first, false); within(first); } else view.facts(null);
    view.mark();
  }

  /* Scrolls the pane, not the page. */
  function within(span) {
    const { target } = view.paneOf(span), box = span.getBoundingClientRect(), frame = target.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) target.scrollTop += box.top - frame.top - frame.height / 2;
  }

  function show(row, token = 0) {
    Object.assign(at, { row, token });
    one("[data-title]").textContent = titled(row);
    one("[data-amiss]").textContent = spelling.visible(row.error ?? "");
    one("[data-raw]").textContent = row.raw ?? "";
    one("[data-raw]").hidden = !row.raw;
    view.marks.told(row);
    const rows = store.at(at.k), named = ({ turn, title }) => (turn === null ? spelling.visible(title ?? "all") : `turn ${turn}`);
    const button = (other) => make("button", { type: "button", "aria-pressed": String(other === row), onclick: () => show(other) }, named(other));
    one(".turns").replaceChildren(...(rows.length > 1 ? rows.map(button) : []));
    const has = { wrong: Boolean(row.expected), twin: Boolean(twinOf(row)), loss: row.losses?.some(Number.isFinite) };
    for (const [name, there] of Object.entries(has)) one(`[data-switch=${name}]`).parentElement.hidden = !there;
    one("[data-twin]").textContent = `compare with ${row.twin ? spelling.visible(row.twin_name ?? "the clean copy") : "what should be learned"}`;
    if (row.ids.length) { view.legend(); draw(); return; }
    for (const part of [".both", ".sources"]) one(part).replaceChildren();
    panes.length = 0;
    view.facts(null);
  }

  function titled(row) {
    const from = row.file !== null && `${row.file}:${row.line}`;
    const parts = row.row === null ? [row.title ?? "a line"] : [view.place(row), row.title, from];
    return [...parts, row.format].filter(Boolean).map(spelling.visible).join(" · ");
  }
  return { draw, show };
};
