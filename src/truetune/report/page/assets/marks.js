/* Findings on rows: the mark of a row, which rows are marked, and what a finding says of the row that is shown. */
truetune.parts.marks = (view) => {
  const { make, spelling } = truetune, { one, store, at } = view, { rules, cases } = view.findings;
  const key = (file, row) => `${file}\n${row}`, byRow = new Map();
  for (const [file, row, rule, text, turn, token, side] of cases) {
    const known = byRow.get(key(file, row)) ?? byRow.set(key(file, row), []).get(key(file, row));
    known.push({ file, row, rule: rules[rule], text, turn, token, side });
  }
  const named = ({ severity, code, rule }) => `${severity} ${code} ${spelling.visible(rule)}`;

  const on = (row) => (row?.row === null || row === undefined ? [] : byRow.get(key(row.file, row.row)) ?? []);
  const distinct = (row) => [...new Set(on(row).map(({ rule }) => rule))];

  /* The places in the store of rows that are marked by one rule, a number (by any where null), in order. */
  function places(rule) {
    const wanted = (row) => on(row).some((mark) => rule === null || mark.rule === rules[rule]);
    if (!store.seek) return [...store.known()].filter(([, views]) => wanted(views?.[0])).map(([k]) => k);
    const rows = cases.filter(([, , number]) => rule === null || number === rule).map(([, row]) => row);
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

  return {
    marks: { drawn, told, on, places, names: (row) => distinct(row).map(({ name }) => name) },
    nextMarked: () => { const rows = places(null); return rows.find((k) => k > at.k) ?? rows[0] ?? null; },
  };
};
