/* The token that is chosen, and its link. */
truetune.parts.chosen = (view) => {
  const { panel } = truetune, { one, at, off, panes, sources } = view;
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
    const { row, turn, title } = at.row;
    const parts = { ...(row === null ? { view: at.k } : { row }), side: title === "rejected" ? title : null, turn, tok: at.token };
    return `#${Object.entries(parts).filter(([, value]) => value !== null).map((part) => part.join("=")).join("&")}`;
  }

  function facts(span) {
    const { row, places } = span ? paneOf(span) : {};
    one(".panel").classList.toggle("empty", !span);
    one("#token-facts").replaceChildren(...(span ? panel.lines(row, places, Number(span.dataset.i), sources) : []));
  }

  /* Selects a token that may be hidden by a switch. */
  function reach(token, focus = true) {
    if (!panes.length) return;
    if (token in panes[0].row.ids && !panes[0].spans[token]) {
      off.clear();
      for (const name of ["supervised", "wrong"]) one(`[data-switch=${name}]`).checked = false;
      view.legend();
      view.draw();
    }
    const span = panes[0].spans[token] ?? panes[0].spans.find(Boolean);
    if (!span) return;
    select(span, focus);
    span.scrollIntoView({ block: "center" });
    view.mark();
  }
  return { paneOf, current, select, link, facts, reach };
};
