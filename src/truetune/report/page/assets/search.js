/* Search in the rows that are here: text across token borders, or `#id`. */
truetune.search = (() => {
  const MOST = 10_000, joined = new WeakMap();

  function text(row) {
    if (!joined.has(row)) {
      const ends = new Uint32Array(row.pieces.length), parts = truetune.spelling.whole(row.pieces);
      let end = 0;
      parts.forEach((part, i) => { ends[i] = end += part.length; });
      joined.set(row, { text: parts.join(""), ends });
    }
    return joined.get(row);
  }

  /* First and last token of each place where the pattern stands. */
  function * spots(row, pattern) {
    const { text: whole, ends } = text(row);
    let first = 0;
    for (const found of whole.matchAll(pattern)) {
      while (ends[first] <= found.index) first++;
      let last = first;
      while (last + 1 < ends.length && (ends[last] < found.index + found[0].length || ends[last + 1] === ends[last])) last++;
      yield [first, last];
    }
  }

  function * ids(row, id) { for (let i = row.ids.indexOf(id); i >= 0; i = row.ids.indexOf(id, i + 1)) yield [i, i]; }

  /* [{k, row, first, last}, ...] in order; at most MOST. */
  function find(entries, query) {
    const id = /^(?:#|id:)\s*(\d+)$/i.exec(query), hits = [];
    const pattern = new RegExp(query.replace(/[\\^$.*+?()[\]{}|/-]/g, (c) => `\\${c}`), "giu");
    for (const [k, rows] of entries) for (const row of rows ?? []) {
      if (row.error && !row.ids?.length) continue;
      for (const [first, last] of id ? ids(row, Number(id[1])) : spots(row, pattern)) {
        if (hits.push({ k, row, first, last }) >= MOST) return hits;
      }
    }
    return hits;
  }
  return { find, MOST };
})();
