/* What colours and marks of the row mean; the sources are buttons that hide and show their tokens. */
truetune.parts.legend = (view) => {
  const { make, number, boxes } = truetune, { one, sources, at, off } = view;

  function chip([key, [label, count]]) {
    const press = ({ currentTarget }) => {
      if (!off.delete(key)) off.add(key);
      currentTarget.setAttribute("aria-pressed", String(!off.has(key)));
      view.draw();
    };
    return make("button", { type: "button", "aria-pressed": String(!off.has(key)), onclick: press },
      make("i", { class: `key s-${key}` }), ` ${label} `, make("span", { class: "place" }, number(count)));
  }

  const scale = (limit, n) => make("span", {}, make("i", { class: `key l${n}` }), ` ${n ? `from ${limit}` : `loss under ${limit}`} `);

  function marks(row) {
    const cut = row.kept ? ["; ", make("s", {}, "struck through"), `: cut off by ${boxes.limit(row)}, not learned`] : [];
    return make("span", { class: "place" }, make("u", {}, "underlined"), ": supervised", row.expected ? "; framed: wrong" : "", ...cut);
  }

  function legend() {
    const row = at.row, counts = new Map();
    for (let i = 0; i < row.ids.length; i++) {
      const { key, label } = boxes.source(row, i, sources);
      counts.set(key, [label, (counts.get(key)?.[1] ?? 0) + 1]);
    }
    const losses = view.switched("loss") ? [boxes.LOSSES[0], ...boxes.LOSSES].map(scale) : [];
    one(".sources").replaceChildren(...[...counts].map(chip), marks(row), ...losses);
  }
  return { legend };
};
