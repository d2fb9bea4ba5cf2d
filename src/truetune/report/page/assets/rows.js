/* The rows of the token view, here or at a server, and a list that draws only what is in view.
   An entry is a row of the data with its views: one, or one a turn. */
truetune.rows = (() => {
  const PAGE = 20, KEPT = 25, WAITING = 3, KEPT_ALONE = 500, WAITING_ALONE = 30;

  function here(rows) {
    const entries = [], known = new Map();
    for (const row of rows) {
      const key = row.row === null ? row : `${row.file}\n${row.row}`;
      if (!known.has(key)) known.set(key, entries.push([]) - 1);
      entries[known.get(key)].push(row);
    }
    const nearest = (number) => entries.reduce((best, views, k) =>
      Math.abs((views[0].row ?? k) - number) < Math.abs((entries[best][0].row ?? best) - number) ? k : best, 0);
    return {
      length: entries.length, end: entries.length, seek: null, index: nearest,
      at: (k) => entries[k], load: async (k) => entries[k], known: () => entries.entries(), async watch(changed) { changed(); },
    };
  }

  function remote(url) {
    const pages = new Map(), alone = new Map(), asked = new Map(), pause = () => new Promise((done) => setTimeout(done, 500));
    let length = 0, total = null, changed = () => {}, turns = 0, queue = Promise.resolve();
    const gone = (row) => `there is no row ${truetune.number(row)}: the last is row ${truetune.number(total - 1)}`;
    /* A server with too much to do says when to come again. */
    async function get(path, query) {
      const response = await fetch(`${path}?${new URLSearchParams(query)}`).catch(() => { throw new Error("no answer; does truetune view still run?"); });
      const later = response.status === 503 ? Number(response.headers.get("Retry-After")) : 0;
      if (later) {
        await new Promise((done) => setTimeout(done, 1000 * later));
        return get(path, query);
      }
      if (!response.ok) throw new Error((await response.text()).trim() || `the server answers ${response.status}`);
      return response.json();
    }
    /* One request after the other; null where it is not wanted any more when its time has come. */
    async function ask(start, count, dropped = () => false) {
      queue = queue.catch(() => {}).then(() => (dropped() ? null : get(url, { start, count })));
      const page = await queue;
      if (!page) return null;
      total = page.total;
      length = Math.max(length, total ?? page.indexed);
      changed(page.notice);
      return page.rows;
    }
    async function fetched(number, dropped) {
      const first = number * PAGE, entries = Array.from({ length: PAGE }, () => []);
      for (let start = first, rows; start < first + PAGE && (total === null || start < total);) {
        rows = await ask(start, first + PAGE - start, dropped);
        if (!rows) return;
        for (const row of rows) entries[row.row - first]?.push(row);
        if (rows.length) start = rows.at(-1).row + 1; else if (total === null) await pause(); else break;
      }
      pages.set(number, entries);
      if (pages.size > KEPT) pages.delete(pages.keys().next().value);
      changed();
    }
    /* A row without its neighbours: those of a list that is filtered are far from each other. */
    async function fetchedAlone(k, dropped) {
      const rows = await ask(k, 1, dropped);
      if (!rows?.length) return;
      alone.set(k, rows);
      if (alone.size > KEPT_ALONE) alone.delete(alone.keys().next().value);
      changed();
    }
    async function loadAlone(k, list) {
      if (!asked.has(`row ${k}`)) {
        const turn = ++turns, dropped = () => list && turns - turn >= WAITING_ALONE;
        asked.set(`row ${k}`, fetchedAlone(k, dropped).finally(() => asked.delete(`row ${k}`)));
      }
      await asked.get(`row ${k}`);
      return at(k);
    }
    const at = (k) => pages.get(Math.floor(k / PAGE))?.[k % PAGE] ?? alone.get(k);
    /* `list`: only to be seen in the list, which may scroll on from it. `single`: without its neighbours. */
    async function load(k, list = false, single = false) {
      if (single) return at(k) ?? loadAlone(k, list);
      const number = Math.floor(k / PAGE);
      if (!pages.has(number)) {
        const page = asked.get(number) ?? { list };
        page.list &&= list;
        if (page.turn !== turns) page.turn = ++turns;
        page.done ??= fetched(number, () => page.list && turns - page.turn >= WAITING).finally(() => asked.delete(number));
        asked.set(number, page);
        await page.done;
      }
      if (k >= (total ?? Infinity)) throw new Error(gone(k));
      return pages.get(number)?.[k % PAGE];
    }
    function index(number) {
      if (number >= (total ?? Infinity)) changed(gone(number));
      return Math.max(0, Math.min(number, (total ?? Infinity) - 1));
    }
    /* The first row from `start` on; null where there is none, or `go(rows looked at)` is false. */
    async function seek(query, start, go) {
      for (let answer; ; start = answer.scanned) {
        answer = await get(url.replace(/rows$/, "search"), { ...query, start });
        if (answer.row !== null || answer.done || !go(answer.scanned)) return answer.row;
        if (answer.scanned === start) await pause();
      }
    }
    async function watch(call) {
      changed = call;
      do await ask(0, 1); while (total === null && await pause().then(() => true));
    }
    return {
      get length() { return length; }, get end() { return total ?? Infinity; }, seek, load, watch,
      get: (path, query) => get(url.replace(/rows$/, path), query),
      at, index,
      * known() { for (const [number, page] of pages) for (const [i, views] of page.entries()) yield [number * PAGE + i, views]; },
    };
  }

  return { open: (data) => (data.remote ? remote(data.remote) : here(data.rows)) };
})();

/* `item(k)` draws one line of `height` px; a list too tall for the browser scrolls several lines at a time. */
truetune.list = (box, height, item) => {
  const TALL = 8e6, sizer = box.appendChild(truetune.make("div", { class: "sizer", role: "presentation" }));
  let count = 0, planned = false;
  const inner = () => Math.min(count * height, TALL);
  const ratio = () => (count * height > TALL ? (count * height - box.clientHeight) / (TALL - box.clientHeight) : 1);
  function draw() {
    planned = false;
    const top = box.scrollTop * ratio(), first = Math.max(0, Math.floor(top / height) - 2);
    const last = Math.min(count, Math.ceil((top + box.clientHeight) / height) + 2);
    sizer.style.height = `${inner()}px`;
    sizer.replaceChildren(...Array.from({ length: Math.max(0, last - first) }, (_, i) => {
      const line = item(first + i);
      line.style.top = `${(first + i) * height - top + box.scrollTop}px`;
      return line;
    }));
    const chosen = sizer.querySelector("[aria-selected=true]");
    if (chosen) box.setAttribute("aria-activedescendant", chosen.id); else box.removeAttribute("aria-activedescendant");
  }
  const plan = () => { if (!planned) planned = Boolean(requestAnimationFrame(draw)); };
  box.addEventListener("scroll", plan, { passive: true });
  new ResizeObserver(plan).observe(box);
  return {
    resize(length) { count = length; box.style.height = `${inner() + 2}px`; draw(); },
    /* A row that is not in the list (-1) moves nothing. */
    reveal(k) {
      if (k < 0) return draw();
      const top = box.scrollTop * ratio(), room = box.clientHeight;
      if (k * height < top || (k + 1) * height > top + room) box.scrollTop = (k * height - room / 2) / ratio();
      draw();
    },
  };
};
