/* The search field: hits in the rows that are here; a server is asked for further rows. */
truetune.parts.hunt = (view) => {
  const { number } = truetune, { MOST, find: search } = truetune.search, { one, all, store, at, panes, say } = view;
  const counted = (text) => { one("[data-hits]").textContent = text; };
  let query = "", hits = [], asking = 0;

  function find(text, entries = store.seek ? [[at.k, [at.row]]] : store.known()) {
    query = text;
    hits = text && at.row ? search(entries, text) : [];
    at.hit = -1;
    if (hits.length) hit(Math.max(0, hits.findIndex(({ k }) => k >= at.k)));
    else { counted(!text ? "" : store.seek ? "not in this row: ↓ searches on" : "nothing found"); mark(); }
  }

  function enter(text, by) {
    if (text === query) return hit(at.hit + by);
    find(text);
    if (store.seek && !hits.length) hit(0);
  }

  async function hit(n) {
    if (store.seek && query && n >= hits.length) return seek({ q: query }, (rows) => find(query, [[at.k, rows]]));
    if (!hits.length) return;
    at.hit = (n + hits.length) % hits.length;
    const { k, row, first } = hits[at.hit];
    const whole = store.seek ? " in this row" : hits.length < MOST ? "" : " or more";
    counted(`${number(at.hit + 1)} of ${number(hits.length)}${whole}`);
    if (row !== at.row) await view.choose(k, first, { row });
    view.reach(first, false);
  }

  /* Asks the server for the next row. */
  async function seek(asked, then) {
    const mine = ++asking, from = at.k;
    const going = (rows) => { say(`${number(rows)} rows searched`); return mine === asking; };
    const row = await store.seek(asked, from + 1, going).catch(view.failed);
    if (mine !== asking) return;
    if (row === null) return say(`none from row ${number(from + 1)} on`);
    if (row === undefined) return;
    say("");
    await view.choose(row);
    then(store.at(row));
  }

  function mark() {
    for (const span of all(".found")) span.classList.remove("found", "now");
    for (const found of hits.filter(({ row }) => row === at.row)) for (let i = found.first; i <= found.last; i++) {
      panes[0]?.spans[i]?.classList.add("found", found === hits[at.hit] ? "now" : "found");
    }
  }
  return { find, enter, hit, seek, mark };
};
