/* The token view: a list of rows, one row as boxes, what is known of one token. */
truetune.section("tokens", (element, data) => {
  const { make, number, many, spelling, boxes, panel, write } = truetune;
  const one = (selector) => element.querySelector(selector), all = (selector) => [...element.querySelectorAll(selector)];
  const store = truetune.rows.open(data), sources = data.sources, LINE = 46;
  const at = { k: -1, view: null, token: 0, hit: -1 }, off = new Set(), panes = [];
  let hits = [], timer = 0, opened = null;
  const say = (text) => { one(".said").textContent = text; };
  const switched = (name) => { const box = one(`[data-switch=${name}]`); return box.checked && !box.parentElement.hidden; };
  const place = ({ row, title }) => (row === null ? spelling.visible(title ?? "a line").split(", placed by ")[0] : `row ${number(row)}`);

  /* --- the list of rows */
  const list = truetune.list(one(".list"), LINE, (k) => {
    const views = store.at(k), view = views?.[0];
    if (!views) later();
    const supervised = view && number(view.supervised.replaceAll("0", "").length);
    const where = { "aria-selected": String(k === at.k), "aria-setsize": store.length, "aria-posinset": k + 1 };
    return make("div", { role: "option", class: "entry", id: `entry-${k}`, "data-k": k, ...where },
      make("b", {}, view ? place(view) : `row ${number(k)}`),
      view && marked(view) ? make("span", { class: "noted" }, view.error ? " ● amiss" : " ● finding") : null,
      views?.length > 1 ? ` · ${views.length} turns` : null,
      make("span", { class: "place" }, view ? `${many(view.ids.length, "token")}, ${supervised} supervised` : ""));
  });
  const linked = new Set([...document.querySelectorAll("#findings a[href^='#']")].map((a) => a.hash.split("&")[0]));
  const marked = (view) => Boolean(view.error) || (view.row !== null && linked.has(`#row=${view.row}`));
  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      for (const { dataset } of all(".entry")) if (!store.at(Number(dataset.k))) store.load(Number(dataset.k)).catch(failed);
    }, 60);
  }
  const failed = (error) => say(`the rows can't be read: ${error.message}`);

  /* --- one row */
  function look(row) {
    const tests = [];
    if (switched("supervised")) tests.push((i) => boxes.supervised(row, i));
    if (switched("wrong")) tests.push((i) => boxes.wrong(row, i));
    if (off.size) tests.push((i) => !off.has(boxes.source(row, i, sources).key));
    const keep = tests.length ? (i) => tests.every((test) => test(i)) : null;
    return { sources, text: switched("text"), ids: switched("ids"), loss: switched("loss"), keep };
  }

  function twinOf(view) {
    if (view.twin || !view.expected?.length || view.expected === view.supervised) return view.twin;
    return { ...view, supervised: view.expected, expected: undefined, losses: undefined };
  }

  function pane(row, title, differs) {
    const target = make("div", {
      class: "tokens", role: "listbox", "aria-label": `Tokens of ${place(row)}${title && `, ${title}`}`,
      "aria-orientation": "horizontal", dir: switched("text") ? "auto" : "ltr",
    });
    panes.push({ row, target, places: spelling.places(row), spans: boxes.draw(target, row, { ...look(row), differs }) });
    return make("div", {}, title ? make("p", { class: "side" }, title) : null, target);
  }

  function draw() {
    const view = at.view, twin = switched("twin") ? twinOf(view) : null;
    panes.length = 0;
    if (twin) {
      const differs = boxes.differing(view, twin), count = differs[0].reduce((sum, mark) => sum + mark, 0);
      const title = view.twin ? spelling.visible(view.twin_name ?? "clean twin") : "as the inference contract wants it";
      one(".both").replaceChildren(pane(view, "as it is", differs[0]), pane(twin, title, differs[1]));
      panes[1].spans.find(Boolean)?.setAttribute("tabindex", 0);
      panes.forEach(({ target }, n) => target.addEventListener("scroll", () => { panes[1 - n].target.scrollTop = target.scrollTop; }));
      say(`${many(count, "token")} ${count === 1 ? "differs" : "differ"}`);
    } else one(".both").replaceChildren(pane(view, ""));
    const first = panes[0].spans[at.token] ?? panes[0].spans.find(Boolean);
    if (first) { select(first, false); within(first); } else facts(null);
    mark();
  }

  /* Scrolls the pane, not the page. */
  function within(span) {
    const { target } = paneOf(span), box = span.getBoundingClientRect(), frame = target.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) target.scrollTop += box.top - frame.top - frame.height / 2;
  }

  function legend() {
    const row = at.view, counts = new Map();
    for (let i = 0; i < row.ids.length; i++) {
      const { key, label } = boxes.source(row, i, sources);
      counts.set(key, [label, (counts.get(key)?.[1] ?? 0) + 1]);
    }
    const chip = ([key, [label, count]]) => make("button", { type: "button", "aria-pressed": String(!off.has(key)), onclick(event) {
      if (!off.delete(key)) off.add(key);
      event.currentTarget.setAttribute("aria-pressed", String(!off.has(key)));
      draw();
    } }, make("i", { class: `key s-${key}` }), ` ${label} `, make("span", { class: "place" }, number(count)));
    const marks = make("span", { class: "place" }, make("u", {}, "underlined"), ": supervised", row.expected ? "; framed: wrong" : "");
    const scale = (limit, n) => make("span", {}, make("i", { class: `key l${n}` }), ` ${n ? `from ${limit}` : `loss under ${limit}`} `);
    const losses = switched("loss") ? [boxes.LOSSES[0], ...boxes.LOSSES].map(scale) : [];
    one(".sources").replaceChildren(...[...counts].map(chip), marks, ...losses);
  }

  function titled(view) {
    const from = view.file !== null && `${view.file}:${view.line}`;
    const parts = view.row === null ? [view.title ?? "a line"] : [place(view), view.title, from];
    return [...parts, view.format].filter(Boolean).map(spelling.visible).join(" · ");
  }

  function show(view, token = 0) {
    Object.assign(at, { view, token });
    one("[data-title]").textContent = titled(view);
    one("[data-amiss]").textContent = spelling.visible(view.error ?? "");
    const views = store.at(at.k);
    const named = ({ turn, title }) => (turn === null ? spelling.visible(title ?? "all") : `turn ${turn}`);
    const turn = (other) => make("button", { type: "button", "aria-pressed": String(other === view), onclick: () => show(other) }, named(other));
    one(".turns").replaceChildren(...(views.length > 1 ? views.map(turn) : []));
    const has = { wrong: Boolean(view.expected), twin: Boolean(twinOf(view)), loss: view.losses?.some(Number.isFinite) };
    for (const [name, there] of Object.entries(has)) one(`[data-switch=${name}]`).parentElement.hidden = !there;
    const twin = view.twin ? spelling.visible(view.twin_name ?? "clean twin") : "what should be learned";
    one("[data-twin]").textContent = `diff with ${twin}`;
    if (view.ids.length) { legend(); draw(); return; }
    for (const part of [".both", ".sources"]) one(part).replaceChildren();
    panes.length = 0;
    facts(null);
  }

  async function choose(k, token, wanted) {
    if (k < 0 || k >= store.end) return;
    at.k = k;
    list.reveal(k);
    const views = store.at(k) ?? await store.load(k).catch(failed);
    if (at.k !== k || !views?.length) return views && say(`row ${number(k)} has no tokens`);
    const view = views.find((v) => v === wanted || (v.turn !== null && v.turn === wanted)) ?? views[0];
    one("[data-jump]").value = view.row ?? k;
    show(view, token ?? 0);
  }

  /* --- one token */
  const paneOf = (span) => panes.find((pane) => pane.target.contains(span)) ?? panes[0];
  const current = (pane) => pane?.target.querySelector(".t[tabindex]");
  function select(span, focus = true) {
    const names = { tabindex: 0, "aria-selected": true, "aria-describedby": "token-facts" }, old = current(paneOf(span));
    for (const [name, value] of Object.entries(names)) { old?.removeAttribute(name); span.setAttribute(name, value); }
    facts(span);
    if (paneOf(span) === panes[0]) at.token = Number(span.dataset.i);
    one("[data-link]").setAttribute("href", link());
    if (focus) { span.focus({ preventScroll: true }); span.scrollIntoView({ block: "nearest", inline: "nearest" }); }
  }

  function link() {
    const { row, turn } = at.view;
    return `#${row === null ? `view=${at.k}` : `row=${row}`}${turn === null ? "" : `&turn=${turn}`}&tok=${at.token}`;
  }

  function facts(span) {
    const { row, places } = span ? paneOf(span) : {};
    one(".panel").classList.toggle("empty", !span);
    one("#token-facts").replaceChildren(...(span ? panel.lines(row, places, Number(span.dataset.i), sources) : []));
  }

  /* --- search, findings, links */
  let query = "";
  function find(text, entries = store.seek ? [[at.k, [at.view]]] : store.known()) {
    query = text;
    hits = text && at.view ? truetune.search.find(entries, text) : [];
    at.hit = -1;
    if (hits.length) hit(Math.max(0, hits.findIndex(({ k }) => k >= at.k)));
    else { counted(!text ? "" : store.seek ? "not in this row: ↓ searches on" : "nothing found"); mark(); }
  }
  function enter(text, by) {
    clearTimeout(find.timer);
    if (text === query) return hit(at.hit + by);
    find(text);
    if (store.seek && !hits.length) hit(0);
  }
  const counted = (text) => { one("[data-hits]").textContent = text; };
  async function hit(n) {
    if (store.seek && query && n >= hits.length) return seek({ q: query }, (views) => find(query, [[at.k, views]]));
    if (!hits.length) return;
    at.hit = (n + hits.length) % hits.length;
    const { k, view, first } = hits[at.hit];
    const whole = store.seek ? " in this row" : hits.length < truetune.search.MOST ? "" : " or more";
    counted(`${number(at.hit + 1)} of ${number(hits.length)}${whole}`);
    if (view !== at.view) await choose(k, first, view);
    reach(first, false);
  }
  /* Asks the server for the next row. */
  async function seek(asked, then) {
    const turn = (seek.turn = (seek.turn ?? 0) + 1), from = at.k;
    const going = (rows) => { say(`${number(rows)} rows searched`); return turn === seek.turn; };
    const row = await store.seek(asked, from + 1, going).catch(failed);
    if (turn !== seek.turn) return;
    if (row === null) return say(`none from row ${number(from + 1)} on`);
    if (row === undefined) return;
    say("");
    await choose(row);
    then(store.at(row));
  }
  function mark() {
    for (const span of all(".found")) span.classList.remove("found", "now");
    for (const found of hits.filter(({ view }) => view === at.view)) for (let i = found.first; i <= found.last; i++) {
      panes[0]?.spans[i]?.classList.add("found", found === hits[at.hit] ? "now" : "found");
    }
  }
  /* Selects a token that may be hidden by a switch. */
  function reach(token, focus = true) {
    if (!panes.length) return;
    if (token in panes[0].row.ids && !panes[0].spans[token]) {
      off.clear();
      for (const name of ["supervised", "wrong"]) one(`[data-switch=${name}]`).checked = false;
      legend();
      draw();
    }
    const span = panes[0].spans[token] ?? panes[0].spans.find(Boolean);
    if (!span) return;
    select(span, focus);
    span.scrollIntoView({ block: "center" });
    mark();
  }

  async function go(hash) {
    const asked = new URLSearchParams(hash.slice(1));
    const [row, turn, token, line] = ["row", "turn", "tok", "view"].map((name) => (asked.get(name) ? Number(asked.get(name)) : null));
    const k = row === null ? line : store.index(row);
    if (!Number.isInteger(k)) return false;
    element.scrollIntoView();
    await choose(k, token ?? 0, turn);
    if (at.k !== k || !panes.length) return true;
    if (row !== null && at.view.row !== row) say(`row ${number(row)} is not in this page; the nearest is ${number(at.view.row)}`);
    reach(token ?? Math.max(0, turn === null ? 0 : panes[0].places.findIndex(([path]) => path.startsWith(`messages[${turn}]`))));
    return true;
  }

  async function copy() {
    write(link());
    try {
      if (self !== top) throw new Error("a frame has no clipboard");
      await navigator.clipboard.writeText(truetune.address(link()));
      say("the link is copied");
    } catch {
      getSelection().selectAllChildren(one("[data-link]"));
      say(`copy it from the address bar: ${link()}`);
    }
  }
  const found = () => [...document.querySelectorAll("#findings a[href^='#row='], #findings a[href^='#view=']")];
  let finding = -1;
  function nextFinding() {
    if (store.seek) return seek({ kind: "error" }, () => {});
    const links = found();
    if (!links.length) return;
    finding = (finding + 1) % links.length;
    go(links[finding].hash);
    say(`${finding + 1} of ${links.length}: ${links[finding].closest("details").querySelector("summary").textContent}`);
  }

  /* --- wiring */
  const dialog = one("dialog"), words = one("[data-find]");
  const acts = {
    before: () => hit(at.hit - 1), after: () => hit(at.hit + 1), finding: nextFinding, copy,
    help: () => dialog.showModal(), close: () => dialog.close(),
  };
  element.addEventListener("click", (event) => {
    const act = event.target.closest("[data-do]"), entry = event.target.closest(".entry"), token = event.target.closest(".t");
    if (act) acts[act.dataset.do]();
    else if (entry) choose(Number(entry.dataset.k));
    else if (token) select(token);
  });
  element.addEventListener("change", ({ target }) => {
    if (target.dataset.switch && panes.length) { legend(); draw(); }
    else if (target.matches("[data-jump]")) choose(store.index(Number(target.value)));
  });
  one(".both").addEventListener("pointerover", ({ target, pointerType }) => {
    if (pointerType === "mouse" && target.closest(".t")) facts(target.closest(".t"));
  });
  one(".both").addEventListener("pointerleave", () => facts(current(panes[0])));
  words.addEventListener("input", () => { clearTimeout(find.timer); find.timer = setTimeout(() => find(words.value), 120); });
  words.addEventListener("keydown", (event) => {
    if (event.key === "Enter") enter(words.value, event.shiftKey ? -1 : 1);
    if (event.key === "Escape") find((words.value = ""));
  });

  const rowKeys = { j: 1, PageDown: 1, k: -1, PageUp: -1 };
  const listKeys = { ArrowDown: () => at.k + 1, ArrowUp: () => at.k - 1, Home: () => 0, End: () => store.length - 1 };
  function key(event, token) {
    if (event.key in rowKeys) return choose(at.k + rowKeys[event.key]).then(() => { if (token) reach(0); });
    if (event.key === "n") return nextFinding();
    if (event.target.matches(".list")) return listKeys[event.key] ? choose(listKeys[event.key]()) : false;
    const next = token && boxes.move(paneOf(token).spans, Number(token.dataset.i), event.key);
    return next ? select(next) : false;
  }
  const typing = ({ target, ctrlKey, metaKey, altKey }) =>
    dialog.open || ctrlKey || metaKey || altKey || target.matches?.("input:not([type=checkbox]), select, textarea");
  element.addEventListener("keydown", (event) => {
    if (!typing(event) && key(event, event.target.closest(".t")) !== false) event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (typing(event) || !["/", "?"].includes(event.key)) return;
    event.preventDefault();
    if (event.key === "/") words.focus(); else acts.help();
  });

  one(".tokenview").hidden = false;
  one(".tokenview").classList.toggle("single", store.end < 2);
  one("[data-do=finding]").hidden = !store.seek && !found().length;
  truetune.go = go;
  store.watch((notice) => {
    list.resize(store.length);
    if (notice) say(spelling.visible(notice));
    if (!opened && store.length) opened = go(location.hash).then((gone) => gone || choose(0));
  }).catch(failed);
});
