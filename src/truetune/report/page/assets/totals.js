/* The figures of all rows, above them: they grow while a server counts. */
truetune.parts.totals = (view) => {
  const { make, number, spelling } = truetune, { one, store } = view;
  const FIRST_PAUSE = 500, LONGEST_PAUSE = 5000;
  const share = (part, whole) => (whole ? `${(100 * part / whole).toFixed(1)} %` : "");

  function tile(name, value, note) {
    return make("li", { class: "tile" }, make("b", {}, value), " ", make("span", { class: "tile-name" }, name), make("span", { class: "tile-note" }, note));
  }

  function progress({ rows, total, done, failure }) {
    if (failure) return spelling.visible(failure);
    return done ? "" : `counting: ${number(rows)} of ${total === null ? "the" : number(total)} rows so far`;
  }

  function table(first, lines, tokens) {
    const head = [first, "rows", "tokens", "supervised", "of all tokens"].map((name) => make("th", { scope: "col" }, name));
    const body = lines.map(({ key, name, label, ...counts }) => make("tr", {},
      make("th", { scope: "row" }, key ? make("i", { class: `key s-${key}` }) : null, ` ${spelling.visible(label ?? name)}`),
      ...[number(counts.rows), number(counts.tokens), number(counts.supervised), share(counts.tokens, tokens)].map((text) => make("td", {}, text))));
    return make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
  }

  function draw(totals) {
    const marked = view.marks.places(null).length, { rules, cases } = view.findings;
    const found = new Set(cases.map(([, , rule]) => rules[rule])), hasMore = [...found].some((rule) => rule.has_more);
    one("[data-counting]").textContent = progress(totals);
    one("[data-totals]").replaceChildren(...[
      tile("rows", number(totals.total ?? store.length), totals.total === null ? "found so far" : `in ${truetune.many(totals.file_count, "file")}`),
      tile("tokens", totals.tokens ? number(totals.tokens) : "–", `in ${truetune.many(totals.rows, "row")}`),
      tile("supervised", share(totals.supervised, totals.tokens) || "–", truetune.many(totals.supervised, "token")),
      view.isChecked ? tile("rows with findings", number(marked) + (hasMore ? "+" : ""), `${hasMore ? "at least, " : ""}named by ${truetune.many(found.size, "finding")}`)
        : tile("rows with findings", "–", "not checked: see --check"),
    ]);
    one("[data-tables]").replaceChildren(table("role", totals.roles, totals.tokens), ...(totals.files.length > 1 ? [table("file", totals.files, totals.tokens)] : []));
    truetune.cards.fit();
  }

  /* Asks again until all rows are counted, less and less often: a list that is sorted changes each time. */
  async function follow(figures, renew) {
    for (let pause = FIRST_PAUSE; ; pause = Math.min(1.3 * pause, LONGEST_PAUSE)) {
      const totals = await figures.totals();
      if (store.seek) { one(".totals").hidden = false; draw(totals); }
      await renew(totals);
      if (totals.done || totals.failure) return;
      await new Promise((done) => setTimeout(done, pause));
    }
  }
  return { follow };
};
