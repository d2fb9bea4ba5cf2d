/* The figures of all rows, and the rows that a filter lists: worked out here of the rows in the page, or by a server. */
truetune.figures = (() => {
  const SORTS = { longest: [(row) => row.tokens, -1], shortest: [(row) => row.tokens, 1], most: [(row) => row.share, -1], least: [(row) => row.share, 1] };
  /* In whole numbers: 100 times the share of 29 tokens of 100 is a little less than 29. */
  const isWithin = (hundredfold, tokens, low, high) => hundredfold >= low * tokens && hundredfold <= high * tokens;
  const sum = (rows, name) => rows.reduce((total, row) => total + row[name], 0);

  /* `marked(views)`: the names of the findings on a row. */
  function here({ store, sources, marked }) {
    let counted = null;
    const key = (row) => (letter) => sources[letter.charCodeAt(0) - 97]?.key ?? "other";
    function count([k, views]) {
      const rows = views ?? [];
      const tokens = rows.reduce((total, row) => total + row.ids.length, 0);
      const supervised = rows.reduce((total, row) => total + truetune.boxes.learned(row), 0);
      const roles = new Set(rows.flatMap((row) => [...new Set(row.source)].map(key(row))));
      return { k, tokens, supervised, share: tokens ? supervised / tokens : 0, roles, file: rows[0]?.file, findings: marked(rows[0]) };
    }
    const rows = () => (counted ??= [...store.known()].map(count));

    function totals() {
      const all = rows(), having = (key) => all.filter((row) => row.roles.has(key));
      return {
        rows: all.length, total: all.length, done: true, failure: null, tokens: sum(all, "tokens"), supervised: sum(all, "supervised"),
        roles: sources.map((source) => ({ ...source, rows: having(source.key).length })).filter((role) => role.rows),
        files: [...new Set(all.map((row) => row.file).filter(Boolean))].map((name) => ({ name, rows: all.filter((row) => row.file === name).length })),
      };
    }

    function select({ finding, role, file, min_tokens = 0, max_tokens = Infinity, min_supervised = 0, max_supervised = 100, sort }) {
      const found = rows().filter((row) => (!finding || (finding === "any" ? row.findings.length : row.findings.includes(finding)))
        && (!role || row.roles.has(role)) && (!file || row.file === file)
        && row.tokens >= Number(min_tokens) && row.tokens <= Number(max_tokens)
        && isWithin(100 * row.supervised, Math.max(row.tokens, 1), Number(min_supervised), Number(max_supervised)));
      const [by, direction] = SORTS[sort] ?? [];
      if (by) found.sort((one, other) => direction * (by(one) - by(other)));
      return { rows: found.map((row) => row.k), tokens: sum(found, "tokens"), supervised: sum(found, "supervised"), done: true };
    }
    return { totals: async () => totals(), select: async (query) => select(query) };
  }

  function remote({ get }) {
    async function select(query) {
      const answer = await get("select", query), text = atob(answer.rows), bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      const numbers = new DataView(bytes.buffer);
      return { ...answer, rows: Array.from({ length: bytes.length / 4 }, (_, i) => numbers.getUint32(4 * i, true)) };
    }
    return { totals: () => get("totals", {}), select };
  }
  return { open: (view) => (view.store.seek ? remote(view.store) : here(view)) };
})();
