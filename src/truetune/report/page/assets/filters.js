/* Which rows are listed, and in which order: the form above the list, the address that holds it, the list itself. */
truetune.parts.filters = (view) => {
  const { make, number, many, spelling } = truetune, { one, store, at } = view, { rules } = view.findings;
  const form = one(".filters"), fields = [...form.elements].filter((field) => field.name);
  const figures = truetune.figures.open({ ...view, marked: (row) => view.marks.names(row) });
  let listed = null, positions = new Int32Array(0), asked = 0, query = {}, roles = [];

  /* What the form asks for; a number out of its bounds is no bound. */
  function read() {
    const valid = fields.filter((field) => field.validity.valid && field.value !== "");
    return Object.fromEntries(valid.map((field) => [field.name, field.value]));
  }

  const between = (low, high, unit) => (low && high ? `${low} to ${high} ${unit}` : low ? `at least ${low} ${unit}` : `at most ${high} ${unit}`);
  const ORDERS = { longest: "longest first", shortest: "shortest first", most: "largest supervised share first", least: "smallest supervised share first" };

  /* The filter in words. */
  function * conditions({ finding, role, file, min_tokens, max_tokens, min_supervised, max_supervised, sort }) {
    if (finding) yield finding === "any" ? "with findings" : `with ${finding}`;
    if (role) yield `with ${roles.find(({ key }) => key === role)?.label ?? role}`;
    if (file) yield `of ${spelling.visible(file)}`;
    if (min_tokens || max_tokens) yield between(min_tokens, max_tokens, "tokens");
    if (min_supervised || max_supervised) yield between(min_supervised, max_supervised, "% supervised");
    if (sort) yield ORDERS[sort];
  }

  function tell({ rows, tokens, supervised, done }) {
    const share = tokens ? `, ${(100 * supervised / tokens).toFixed(1)} % supervised` : "";
    const unfinished = done ? "" : " (not all rows are counted yet)";
    one("[data-selection]").textContent = `${number(rows.length)} of ${many(store.length, "row")}: ${[...conditions(query)].join(", ")}. ${many(tokens, "token")}${share}${unfinished}`;
  }

  function show() {
    positions = new Int32Array((listed ?? []).reduce((most, k) => Math.max(most, k + 1), 0)).fill(-1);
    listed?.forEach((k, position) => { positions[k] = position; });
    view.list.resize(view.listed());
    if (at.k >= 0) view.list.reveal(position(at.k));
  }

  /* `stay`: the row that is shown stays, though the list may not have it. */
  async function apply(stay = false) {
    const mine = ++asked;
    query = read();
    const active = Object.keys(query).length;
    one("[data-clear]").hidden = !active;
    if (!active) { listed = null; one("[data-selection]").textContent = ""; return show(); }
    const answer = await figures.select(query).catch((error) => { one("[data-selection]").textContent = error.message; });
    if (mine !== asked || !answer) return;
    listed = answer.rows;
    tell(answer);
    show();
    if (!stay && listed.length && position(at.k) < 0) await view.choose(listed[0]);
  }

  function changed() {
    const wanted = new URLSearchParams(read()), url = new URL(location.href);
    url.search = wanted;
    try { history.replaceState(null, "", url); } catch { /* a sandbox: the page works without */ }
    apply();
  }

  /* Choices of a field, which stays as it is where they are the same. */
  function offer(name, choices) {
    const field = form.elements[name], now = field.value || field.dataset.wanted || "";
    const old = [...field.options].slice(1);
    if (old.length === choices.length && old.every(({ value }, i) => value === choices[i][0])) {
      old.forEach((option, i) => { if (option.text !== choices[i][1]) option.text = choices[i][1]; });
    } else field.replaceChildren(field.options[0], ...choices.map(([value, text]) => make("option", { value }, text)));
    field.value = choices.some(([value]) => value === now) ? now : "";
    field.closest("label").hidden = !choices.length;
  }

  function offerFindings() {
    const any = view.marks.places(null).length;
    const found = rules.map((rule, i) => [rule, view.marks.places(i).length]).filter(([, count]) => count);
    const named = found.map(([rule, count]) => [rule.name, `${rule.code} ${spelling.visible(rule.rule)}: ${rule.severity} (${number(count)})`]);
    offer("finding", any ? [["any", `rows with findings (${number(any)})`], ...named] : []);
  }

  /* Called with the figures as they grow. */
  function renew(totals) {
    roles = totals.roles;
    offer("role", roles.map((role) => [role.key, `${role.label} (${number(role.rows)})`]));
    offer("file", totals.files.length > 1 ? totals.files.map(({ name, rows }) => [name, `${spelling.visible(name)} (${number(rows)})`]) : []);
    if (Object.keys(read()).length) return apply(at.k >= 0);
    /* The address asks for what no row has: all rows are listed. */
    if (at.k < 0 && (totals.done || totals.failure)) return view.choose(0);
  }

  function start() {
    const wanted = new URLSearchParams(location.search);
    for (const field of fields) {
      field.value = wanted.get(field.name) ?? "";
      field.dataset.wanted = wanted.get(field.name) ?? "";
    }
    offerFindings();
    let timer = 0;
    form.addEventListener("input", ({ target }) => {
      target.dataset.wanted = "";
      clearTimeout(timer);
      timer = setTimeout(changed, target.matches("select") ? 0 : 200);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    one("[data-clear]").addEventListener("click", () => {
      for (const field of fields) field.value = field.dataset.wanted = "";
      changed();
      form.elements.finding.closest("label").hidden ? form.elements.sort.focus() : form.elements.finding.focus();
    });
    const fold = one(".filterfold"), narrow = matchMedia("(max-width: 40rem)").matches;
    fold.hidden = store.end < 2;
    fold.open = !narrow || [...wanted.keys()].some((name) => form.elements[name]);
    return view.follow(figures, renew);
  }

  const position = (k) => (listed ? positions[k] ?? -1 : k);
  /* The row that stands `by` rows on in the list; from a row that is not in it, the next one that is. */
  function step(by) {
    if (!listed) return at.k + by;
    const here = position(at.k), next = listed.findIndex((k) => k > at.k);
    return listed[here >= 0 ? here + by : by > 0 ? next : next < 0 ? listed.length - 1 : next - 1] ?? -1;
  }
  return {
    filters: { start, isActive: () => fields.some((field) => field.value || field.dataset.wanted) }, isFiltered: () => listed !== null, step, position, listed: () => listed?.length ?? store.length,
    listedAt: (number) => (listed ? listed[number] ?? -1 : number),
  };
};
