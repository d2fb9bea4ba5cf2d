/* The token view: a list of rows, one row as boxes, what is known of one token. Its parts know each other by `view`. */
truetune.section("tokens", (element, data) => {
  const one = (selector) => element.querySelector(selector), all = (selector) => [...element.querySelectorAll(selector)];
  const view = {
    element, one, all, store: truetune.rows.open(data), sources: data.sources, findings: data.marks ?? { rules: [], cases: [] }, isChecked: Boolean(data.marks),
    at: { k: -1, row: null, token: 0, hit: -1 }, off: new Set(), panes: [],
    say(text) { one(".said").textContent = text; },
    switched(name) { const box = one(`[data-switch=${name}]`); return box.checked && !box.parentElement.hidden; },
  };
  for (const part of Object.values(truetune.parts)) Object.assign(view, part(view));
  const { store, say, go } = view;
  view.wire();
  one(".tokenview").hidden = false;
  one(".tokenview").classList.toggle("single", store.end < 2);
  one("[data-do=finding]").hidden = !store.seek && !view.found().length;
  truetune.go = go;
  let opened = null;
  /* The row that the address names, else the first of the list. */
  async function open() {
    view.filters.start().catch((error) => { view.failed(error); if (view.at.k < 0) view.choose(0); });
    if (!await go(location.hash) && !view.filters.isActive()) await view.choose(0);
  }
  store.watch((notice) => {
    view.list.resize(view.listed());
    if (notice) say(truetune.spelling.visible(notice));
    if (!opened && store.length) opened = open();
  }).catch(view.failed);
});
