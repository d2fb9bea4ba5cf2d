/* The rows of the token view, here or at a server, and a list that draws only what is in view.
   An entry is a row of the data with its views: one, or one a turn. */
truetune.rows = (() => {
  const PAGE = 20, KEPT = 25;

  function here(rows) {
    const entries = [], known = new Map();
    for (const row of rows) {
      const key = row.row === null ? row : `${row.file}\n${row.row}`;
      if (!known.has(key)) known.set(key, entries.push([]) - 1);
      entries[known.get(key)].push(row);
    }
    const nearest = (number) => entries.reduce((best, views, k) =>
      Math.abs(views[0].row - number) < Math.abs(entries[best][0].row - number) ? k : best, 0);
    return {
      get length() { return entries.length; }, whole: true, at: (k) => entries[k], load: async (k) => entries[k],
      index: nearest, known: () => entries.entries(), watch() {},
    };
  }

  function remote(url) {
    const pages = new Map(), asked = new Map();
    let length = 0, total = null, changed = () => {};
    async function ask(start, count) {
      const response = await fetch(`${url}?start=${start}&count=${count}`);
      if (!response.ok) throw new Error(`the server says ${response.status}`);
      const page = await response.json();
      total = page.total;
      length = Math.max(length, total ?? page.indexed);
      return page.rows;
    }
    async function fetched(number) {
      const entries = Array.from({ length: PAGE }, () => []);
      for (const row of await ask(number * PAGE, PAGE)) entries[row.row - number * PAGE]?.push(row);
      pages.set(number, entries);
      if (pages.size > KEPT) pages.delete(pages.keys().next().value);
      changed();
    }
    function load(k) {
      const number = Math.floor(k / PAGE);
      if (!pages.has(number) && !asked.has(number)) asked.set(number, fetched(number).finally(() => asked.delete(number)));
      return Promise.resolve(asked.get(number)).then(() => pages.get(number)[k % PAGE]);
    }
    async function watch(call) {
      changed = call;
      do await ask(0, 0).then(changed, changed); while (total === null && await new Promise((done) => setTimeout(done, 1000, true)));
    }
    return {
      get length() { return length; }, whole: false, at: (k) => pages.get(Math.floor(k / PAGE))?.[k % PAGE], load,
      index: (number) => Math.min(Math.max(number, 0), Math.max(length - 1, 0)), watch,
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
  }
  const plan = () => { if (!planned) planned = Boolean(requestAnimationFrame(draw)); };
  box.addEventListener("scroll", plan, { passive: true });
  new ResizeObserver(plan).observe(box);
  return {
    resize(length) { count = length; draw(); },
    reveal(k) {
      const top = box.scrollTop * ratio(), room = box.clientHeight;
      if (k * height < top || (k + 1) * height > top + room) box.scrollTop = (k * height - room / 2) / ratio();
      draw();
    },
  };
};
