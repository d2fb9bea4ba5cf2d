/* What is known of one token, line by line. */
truetune.panel = (() => {
  const { make, number, spelling, boxes } = truetune, { visible } = spelling;
  const on = (bits, i) => bits?.[i] === "1";
  const from = (row, [path, start, end], i) =>
    path ? visible(path) + (start < 0 ? "" : `[${start}:${end}]`) : on(row.padding, i) ? "padding" : "the template";

  function document(row, i) {
    const count = row.documents[i], origin = row.origins?.[count];
    return origin ? `${count}: ${visible(String(origin[0]))}:${origin[1]}` : String(count);
  }

  function expected(row, i) {
    if (!boxes.wrong(row, i)) return ["expected", "the same"];
    return ["wrong", on(row.expected, i) ? "must be learned, and is not" : "is learned, and must not be", "amiss"];
  }

  /* [name, value, class], ... */
  function * known(row, places, i, sources) {
    const learned = boxes.supervised(row, i);
    yield ["text", spelling.spell(row.pieces[i]), "spelled"];
    yield ["id", String(row.ids[i])];
    yield ["source", boxes.source(row, i, sources).label];
    yield ["from", from(row, places[i], i), "wide"];
    yield boxes.kept(row, i) ? ["label", `${row.labels?.[i] ?? (learned ? row.ids[i] : -100)} (${learned ? "supervised" : "context"})`]
      : ["label", `none: cut off by ${boxes.limit(row)}`, "amiss"];
    if (row.expected && boxes.kept(row, i)) yield expected(row, i);
    yield ["token", `${number(i)} of ${number(row.ids.length)}`];
    if (row.positions) yield ["position", number(row.positions[i])];
    if (row.documents?.[i] >= 0) yield ["document", document(row, i)];
    if (row.attended) yield ["attended", on(row.attended, i) ? "yes" : "no"];
    for (const [name, values] of [["weight", row.weights], ["loss", row.losses], ["rank", row.ranks]]) {
      if (Number.isFinite(values?.[i])) yield [name, String(Number(values[i].toPrecision(4)))];
    }
  }

  /* A path may be broken before its range. */
  function line([name, value, kind]) {
    const parts = value.split(/(?=\[\d+:)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
    return make("div", { class: kind }, make("dt", {}, name), make("dd", {}, make("bdi", {}, ...parts)));
  }
  return { lines: (...asked) => [...known(...asked)].map(line) };
})();
