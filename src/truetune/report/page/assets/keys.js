/* Mouse, keys, switches and fields of the token view. */
truetune.parts.keys = (view) => {
  const { boxes } = truetune, { element, one, at, panes } = view;
  const dialog = one("dialog"), words = one("[data-find]");
  const ROWS = { j: 1, PageDown: 1, k: -1, PageUp: -1 };
  const LIST = { ArrowDown: () => view.step(1), ArrowUp: () => view.step(-1), Home: () => view.listedAt(0), End: () => view.listedAt(view.listed() - 1) };

  function key(event, token) {
    if (event.key in ROWS) return view.choose(view.step(ROWS[event.key])).then(() => { if (token) view.reach(0); });
    if (event.key === "n") return view.nextFinding();
    if (event.target.matches(".list")) return LIST[event.key] ? view.choose(LIST[event.key]()) : false;
    const next = token && boxes.move(view.paneOf(token).spans, Number(token.dataset.i), event.key);
    return next ? view.select(next) : false;
  }

  function pointing() {
    const acts = {
      before: () => view.hit(at.hit - 1), after: () => view.hit(at.hit + 1), finding: view.nextFinding, copy: view.copy,
      help: () => dialog.showModal(), close: () => dialog.close(),
    };
    element.addEventListener("click", ({ target }) => {
      const act = target.closest("[data-do]"), entry = target.closest(".entry"), token = target.closest(".t");
      if (act) acts[act.dataset.do]();
      else if (entry) view.choose(Number(entry.dataset.k));
      else if (token) view.select(token);
    });
    one(".both").addEventListener("pointerover", ({ target, pointerType }) => {
      if (pointerType === "mouse" && target.closest(".t")) view.facts(target.closest(".t"));
    });
    one(".both").addEventListener("pointerleave", () => view.facts(view.current(panes[0])));
  }

  function fields() {
    let timer = 0;
    element.addEventListener("change", ({ target }) => {
      if (target.dataset.switch && panes.length) { view.legend(); view.draw(); }
      else if (target.matches("[data-jump]")) view.jump(Number(target.value));
    });
    words.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => view.find(words.value), 120); });
    words.addEventListener("keydown", (event) => {
      if (event.key === "Enter") { clearTimeout(timer); view.enter(words.value, event.shiftKey ? -1 : 1); }
      if (event.key === "Escape") view.find((words.value = ""));
    });
  }

  const typing = ({ target, ctrlKey, metaKey, altKey }) =>
    dialog.open || ctrlKey || metaKey || altKey || target.matches?.("input:not([type=checkbox]), select, textarea");

  function typed() {
    element.addEventListener("keydown", (event) => {
      if (!typing(event) && key(event, event.target.closest(".t")) !== false) event.preventDefault();
    });
    document.addEventListener("keydown", (event) => {
      if (typing(event) || !["/", "?"].includes(event.key)) return;
      event.preventDefault();
      if (event.key === "/") words.focus(); else dialog.showModal();
    });
  }
  return { wire() { pointing(); fields(); typed(); } };
};
