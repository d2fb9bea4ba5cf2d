/* Findings on rows: the mark of a row, the list of marked rows alone, and what a finding says of the row that is shown. */
truetune.parts.marks = (view) => {
  const { make, many, spelling } = truetune, { one, store, at } = view, { rules, cases } = view.findings;
  const select = one("[data-marked]"), key = (file, row) => `${file}\n${row}`, byRow = new Map();
  for (const [file, row, rule, text, turn, token, side] of cases) {
    const known = byRow.get(key(file, row)) ?? byRow.set(key(file, row), []).get(key(file, row));
    known.push({ file, row, rule: rules[rule], text, turn, token, side });
  }
  const named = ({ severity, code, rule }) => `${severity} ${code} ${spelling.visible(rule)}`;
  let listed = null, of = new Map();

  const on = (row) => (row?.row === null || row === undefined ? [] : byRow.get(key(row.file, row.row)) ?? []);
  const distinct = (row) => [...new Set(on(row).map(({ rule }) => rule))];

  /* The places in the store of rows that are marked by one rule (by any where null), in order. */
  function places(rule) {
    const wanted = (row) => on(row).some((mark) => rule === null || mark.rule === rule);
    if (!store.seek) return [...store.known()].filter(([, views]) => wanted(views?.[0])).map(([k]) => k);
    const rows = cases.filter(([, , number]) => rule === null || rules[number] === rule).map(([, row]) => row);
    return [...new Set(rows)].sort((a, b) => a - b);
  }

  /* At most three marks of an entry, and how many more. */
  function drawn(row) {
    const found = distinct(row), shown = found.slice(0, 3);
    const badge = (rule) => make("span", { class: `mark ${rule.severity}`, title: named(rule), "aria-label": named(rule), role: "img" }, rule.code);
    return [...shown.map(badge), found.length > shown.length ? make("span", { class: "place more" }, `+${found.length - shown.length}`) : null];
  }

  /* What findings say of a row, each leading to its token. */
  function told(row) {
    one("[data-marks]").replaceChildren(...on(row).map(({ rule, text, turn, token, side }) => {
      const parts = Object.entries({ row: row.row, side, turn, tok: token }).filter(([, value]) => value !== null && value !== undefined);
      const name = rule.anchor ? make("a", { href: `#${rule.anchor}` }, spelling.visible(rule.rule)) : make("b", {}, spelling.visible(rule.rule));
      const said = make("a", { href: `#${parts.map(([word, value]) => `${word}=${encodeURIComponent(value)}`).join("&")}` }, spelling.visible(text));
      return make("li", {}, make("span", { class: `mark ${rule.severity}` }, `${rule.severity} ${rule.code}`), " ", name, ...(text === row.error ? [] : [": ", said]));
    }));
  }

  function sift() {
    const chosen = select.value;
    listed = chosen === "all" ? null : places(chosen === "any" ? null : rules[Number(chosen)]);
    of = new Map((listed ?? []).map((k, position) => [k, position]));
    view.list.resize(view.listed());
    if (listed && !of.has(at.k) && listed.length) view.choose(listed[0]); else if (at.k >= 0) view.list.reveal(position(at.k));
    view.say(listed ? `${many(listed.length, "row")} listed` : "");
  }

  function choices() {
    const rows = places(null).length, found = rules.map((rule, i) => [rule, i, places(rule).length]).filter(([, , count]) => count);
    if (!rows) return;
    const option = (value, text) => make("option", { value }, text);
    select.replaceChildren(option("all", "all rows"), option("any", `rows with findings (${truetune.number(rows)})`),
      ...found.map(([rule, i, count]) => option(i, `${rule.code} ${spelling.visible(rule.rule)}: ${rule.severity} (${truetune.number(count)})`)));
    select.hidden = false;
    select.addEventListener("change", sift);
  }

  const position = (k) => (listed ? of.get(k) ?? -1 : k);
  /* The row that stands `by` rows on in the list; from a row that is not in it, the next one that is. */
  function step(by) {
    if (!listed) return at.k + by;
    const here = position(at.k), next = listed.findIndex((k) => k > at.k);
    return listed[here >= 0 ? here + by : by > 0 ? next : next < 0 ? listed.length - 1 : next - 1] ?? -1;
  }
  return {
    marks: { drawn, told, choices, on }, step, position, listed: () => listed?.length ?? store.length,
    listedAt: (number) => (listed ? listed[number] ?? -1 : number),
    nextMarked: () => { const rows = places(null); return rows.find((k) => k > at.k) ?? rows[0] ?? null; },
  };
};
