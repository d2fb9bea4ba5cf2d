/* A row as boxes: one element a token, in chunks that the browser lays out when they come into view. */
truetune.boxes = (() => {
  const { make, number, many, spelling } = truetune;
  const CHUNK = 300, LOSSES = [0.05, 0.5, 1, 2, 4];
  const on = (bits, i) => bits?.[i] === "1";
  const kept = (row, i) => !row.kept || (i >= row.kept[0] && i < row.kept[1]);
  const supervised = (row, i) => on(row.supervised, i) && kept(row, i);
  const wrong = (row, i) => Boolean(row.expected) && kept(row, i) && row.expected[i] !== row.supervised[i];
  const learned = (row) => (row.kept ? row.supervised.slice(...row.kept) : row.supervised).replaceAll("0", "").length;
  const limit = ({ kept: [first, end] }) => `max_length ${number(end - first)}`;
  const bucket = (loss) => LOSSES.filter((limit) => loss >= limit).length;
  const named = (key) => ({ key, label: key });
  const source = (row, i, sources) => (on(row.padding, i) ? named("padding") : sources[row.source.charCodeAt(i) - 97] ?? named("other"));

  function names(row, i, look) {
    const loss = row.losses?.[i];
    return ["t", `s-${source(row, i, look.sources).key}`, supervised(row, i) && "sup", wrong(row, i) && "wrong", !kept(row, i) && "cut",
      row.attended && !on(row.attended, i) && "unseen", look.text && "run", look.differs?.[i] && "differs",
      look.loss && Number.isFinite(loss) && `l${bucket(loss)}`].filter(Boolean).join(" ");
  }

  function box(row, i, look, texts) {
    const text = look.text ? spelling.plain(texts[i]) : spelling.spell(row.pieces[i]);
    const span = make("span", { class: names(row, i, look), role: "option", "data-i": i, "data-id": look.ids ? row.ids[i] : null });
    if (!text.trim()) span.setAttribute("aria-label", text ? "white space" : "part of a character");
    span.append(text);
    return span;
  }

  /* What begins at a token, and is said there: a document of a packed row, or what a limit cuts off. */
  function border(row, i, packed) {
    if (row.kept?.[1] === i) return `cut here: ${limit(row)}; what follows is not learned`;
    if (i && row.kept?.[0] === i) return `cut here: ${limit(row)}; what stands before is not learned`;
    return packed && (!i || row.documents[i] !== row.documents[i - 1]) ? documentTitle(row, i) : null;
  }

  function documentTitle(row, i) {
    const document_ = row.documents[i], origin = row.origins?.[document_], at = row.positions?.[i];
    if (document_ < 0) return "padding";
    const from = origin ? ` from ${spelling.visible(String(origin[0]))}:${origin[1]}, row ${origin[2]}` : "";
    const place = at === undefined || !i ? "" : at === 0 ? "; positions begin again at 0" : `; positions continue at ${number(at)}`;
    return `document ${document_}${from}${place}`;
  }

  /* Documents, and what is cut off, as groups of chunks of tokens; what `look.keep` leaves out as a gap with its count. */
  function draw(target, row, look) {
    const texts = look.text ? spelling.whole(row.pieces) : null, spans = new Array(row.ids.length);
    const packed = row.documents?.some((document) => document > 0);
    let group = target, chunk = null, hidden = 0, filled = 0, opened = 0;
    const gap = () => {
      if (hidden) chunk.append(make("span", { class: "gap", title: `${many(hidden, "token")} not shown` }, `⋯${number(hidden)}`));
      hidden = 0;
    };
    const open = () => { chunk = group.appendChild(make("div", { class: opened++ < 3 ? "chunk" : "chunk far", role: "presentation" })); filled = 0; };
    target.replaceChildren();
    for (let i = 0; i < spans.length; i++) {
      const title = border(row, i, packed);
      if (title) {
        if (chunk) gap();
        const cut = row.kept ? "border cutoff" : "border";
        group = target.appendChild(make("div", { role: "group", class: "document", "aria-label": title }, make("p", { class: cut }, title)));
        open();
      } else if (!chunk || (filled >= CHUNK && /\n$/.test(row.pieces[i - 1])) || filled >= 2 * CHUNK) {
        if (chunk) gap();
        open();
      }
      filled += 1;
      if (look.keep && !look.keep(i)) { hidden += 1; continue; }
      gap();
      chunk.append((spans[i] = box(row, i, look, texts)));
      const ends = look.text ? 0 : row.pieces[i].split("\n").length - 1;
      if (ends) chunk.append("\n".repeat(ends));
    }
    if (chunk) gap();
    return spans;
  }

  /* Which tokens of either row the other has not, in order: ids and what is supervised (Myers' O(ND) difference). */
  function differing(left, right) {
    const keys = [left, right].map((row) => row.ids.map((id, i) => id * 2 + supervised(row, i)));
    const marks = keys.map((list) => new Uint8Array(list.length)), [a, b] = keys;
    let start = 0, m = a.length, n = b.length;
    while (start < m && start < n && a[start] === b[start]) start++;
    while (m > start && n > start && a[m - 1] === b[n - 1]) { m--; n--; }
    const script = m - start && n - start ? path(a.slice(start, m), b.slice(start, n)) : null;
    if (!script) { marks[0].fill(1, start, m); marks[1].fill(1, start, n); }
    for (const [side, at] of script ?? []) marks[side][start + at] = 1;
    return marks;
  }

  /* [0, i] a token of `a` alone, [1, j] one of `b` alone; null where there are too many. */
  function path(a, b, most = 800) {
    const ends = new Map([[1, 0]]), trace = [];
    for (let d = 0; d <= Math.min(most, a.length + b.length); d++) {
      trace.push(new Map(ends));
      for (let k = -d; k <= d; k += 2) {
        let x = k === -d || (k !== d && ends.get(k - 1) < ends.get(k + 1)) ? ends.get(k + 1) : ends.get(k - 1) + 1;
        while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
        ends.set(k, x);
        if (x >= a.length && x - k >= b.length) return back(trace, a.length, b.length);
      }
    }
    return null;
  }

  function back(trace, x, y) {
    const script = [];
    for (let d = trace.length - 1; d > 0; d--) {
      const ends = trace[d], k = x - y, down = k === -d || (k !== d && ends.get(k - 1) < ends.get(k + 1));
      const from = ends.get(down ? k + 1 : k - 1);
      script.push(down ? [1, from - k - 1] : [0, from]);
      [x, y] = [from, from - (down ? k + 1 : k - 1)];
    }
    return script;
  }

  /* The shown token that a key leads to from token `i`. */
  function move(spans, i, key) {
    if (key === "Home") return spans.find(Boolean);
    if (key === "End") return spans.findLast(Boolean);
    if (key === "ArrowLeft") return spans.findLast((span, k) => span && k < i) ?? spans[i];
    if (key === "ArrowRight") return spans.find((span, k) => span && k > i) ?? spans[i];
    return key === "ArrowUp" ? line(spans, i, -1) : key === "ArrowDown" ? line(spans, i, 1) : null;
  }

  /* The nearest one of the line above or below. */
  function line(spans, i, by) {
    const here = spans[i].getBoundingClientRect(), far = (rect) => Math.abs(rect.left - here.left);
    let best = null, top = 0;
    for (let k = i + by; k >= 0 && k < spans.length; k += by) {
      const rect = spans[k]?.getBoundingClientRect();
      if (!rect || (by > 0 ? rect.top < here.bottom - 2 : rect.bottom > here.top + 2)) continue;
      if (best && Math.abs(rect.top - top) > rect.height / 2) break;
      if (!best || far(rect) < far(best.getBoundingClientRect())) [best, top] = [spans[k], rect.top];
    }
    return best ?? spans[i];
  }

  return { draw, move, differing, kept, supervised, learned, limit, wrong, source, LOSSES };
})();
