/* Answers: a step is chosen; each question opens to the answers around it, or side by side, with what differs. */
truetune.answers = (element, data) => {
  const { make } = truetune, CELLS = 4e6, OPEN = 3;
  const steps = [...new Set(data.sides.flatMap((side) => side.looks.map((look) => look.step)))].filter((step) => step !== null).sort((a, b) => a - b);
  const tools = element.querySelector(".samples-tools"), list = element.querySelector(".s-list"), filter = element.querySelector(".s-filter");
  const state = { step: steps.length ? steps.at(-1) : null, verdict: "" };
  const two = data.sides.length > 1;
  const items = data.prompts.map(item);
  tools.hidden = false;
  element.querySelector(".s-key").hidden = !two && steps.length < 2;
  chooser();
  filter.addEventListener("change", () => { state.verdict = filter.value; update(); });
  element.querySelector(".s-fold").addEventListener("click", (event) => {
    const open = event.target.textContent === "expand all";
    items.forEach((one) => { one.details.open = open; });
    event.target.textContent = open ? "collapse all" : "expand all";
  });
  list.append(...items.map((one) => one.details));
  items.slice(0, OPEN).forEach((one) => { one.details.open = true; });
  update();

  /* Slider, list and buttons for the same step. */
  function chooser() {
    if (steps.length < 2) return;
    const box = element.querySelector(".s-steps");
    const slider = make("input", { type: "range", min: "0", max: String(steps.length - 1), "aria-label": "Step" });
    const choice = make("select", { "aria-label": "Step, as a list" }, ...steps.map((step) => make("option", { value: String(step) }, `step ${truetune.number(step)}`)));
    const set = (place) => {
      const at = Math.max(0, Math.min(steps.length - 1, place));
      state.step = steps[at];
      slider.value = String(at);
      slider.setAttribute("aria-valuetext", `step ${truetune.number(state.step)}`);
      choice.value = String(state.step);
      update();
      if (truetune.cursor) truetune.cursor(state.step);
    };
    slider.addEventListener("input", () => set(Number(slider.value)));
    choice.addEventListener("change", () => set(choice.selectedIndex));
    const by = (move, sign, name) => make("button", { type: "button", "aria-label": name, onclick: () => set(steps.indexOf(state.step) + move) }, sign);
    box.append(by(-1, "◂", "step before"), slider, by(1, "▸", "step after"), choice);
    slider.value = slider.max;
    choice.value = String(state.step);
    slider.setAttribute("aria-valuetext", `step ${truetune.number(state.step)}`);
  }

  function item(prompt, number) {
    const head = make("summary", {}), body = make("div", { class: "s-body" });
    const details = make("details", { class: "sample" }, head, body);
    details.addEventListener("toggle", () => fill(one));
    const one = { number, prompt, head, body, details };
    return one;
  }

  /* The last look at or before the step. */
  function lookOf(side) { return side.looks.filter((look) => look.step === null || state.step === null || look.step <= state.step).at(-1); }
  function answers(number) { return data.sides.map((side) => { const look = lookOf(side); return look && look.answers[number]; }); }

  function update() {
    const counts = new Map();
    for (const one of items) for (const said of new Set(verdicts(one))) counts.set(said, (counts.get(said) || 0) + 1);
    filter.replaceChildren(option("", `all ${truetune.many(items.length, "question")}`), ...[...counts].sort((a, b) => b[1] - a[1]).map(([said, count]) => option(said, `${data.said[said] || said} (${count})`)));
    if (state.verdict && !counts.has(state.verdict)) filter.append(option(state.verdict, `${data.said[state.verdict] || state.verdict} (0)`));
    filter.value = state.verdict;
    let shown = 0;
    for (const one of items) {
      const found = answers(one.number);
      one.details.hidden = !found.some(Boolean) || (state.verdict !== "" && !verdicts(one).includes(state.verdict));
      shown += one.details.hidden ? 0 : 1;
      one.head.replaceChildren(
        ...found.flatMap((answer, side) => answer ? [...(two ? [make("span", { class: "place" }, `${"AB"[side]} `)] : []), badge(answer), answer.reward === undefined ? " " : ` reward ${short(answer.reward)} `] : []),
        make("span", { class: "s-question" }, one.prompt.question.split("\n").find((line) => line.trim()) || one.prompt.question), make("span", { class: "place" }, ` ${one.prompt.place}${one.prompt.seen ? ", trained on" : ""}`));
      fill(one);
    }
    element.querySelector(".s-count").textContent = shown === items.length ? "" : `${shown} of ${truetune.many(items.length, "question")}`;
  }

  function verdicts(one) { return answers(one.number).flatMap((answer) => answer ? answer.faults && answer.faults.length ? answer.faults : answer.verdict ? [answer.verdict] : [] : []); }
  function option(value, text) { return make("option", { value }, text); }

  function badge(answer) {
    if (!answer.verdict) return make("span", { class: "verdict-badge" }, "other model");
    const kind = answer.good === true ? "good" : answer.good === false ? "bad" : "open";
    return make("span", { class: `verdict-badge ${kind}` }, data.said[answer.verdict] || answer.verdict);
  }

  function fill(one) {
    if (!one.details.open || one.details.hidden) return;
    const columns = two ? beside(one) : around(one);
    one.body.replaceChildren(
      text("asked", one.prompt.question), make("div", { class: "s-columns" }, ...columns), one.prompt.reference ? text("reference", one.prompt.reference) : "");
  }

  /* Before, at and after the step: what goes is dotted, what is new is underlined. */
  function around(one) {
    const side = data.sides[0], at = side.looks.indexOf(lookOf(side));
    const looks = [-1, 0, 1].map((by) => side.looks[at + by]);
    const [before, now, after] = looks.map((look) => look && look.answers[one.number]);
    const [gone, fresh] = before && now ? difference(before.text, now.text) : [null, null];
    const later = now && after ? difference(now.text, after.text)[1] : null;
    return [[before, gone, "del"], [now, fresh, "ins"], [after, later, "ins"]].map(([answer, parts, tag], i) =>
      answer ? column(answer, parts, tag, looks[i].step === null ? "" : `step ${truetune.number(looks[i].step)}`, i === 1) : null);
  }

  function beside(one) {
    const found = answers(one.number), parts = found[0] && found[1] ? difference(found[0].text, found[1].text) : [null, null];
    return found.map((answer, side) => {
      const look = lookOf(data.sides[side]), at = look && look.step !== null ? `, step ${truetune.number(look.step)}` : "";
      return answer ? column(answer, parts[side], "mark", `${"AB"[side]} ${data.sides[side].name}${at}`) : null;
    });
  }

  function column(answer, parts, tag, title, now = false) {
    const facts = [
      answer.reward === undefined ? null : `reward ${short(answer.reward)}${answer.advantage === undefined ? "" : `, advantage ${short(answer.advantage)}`}`,
      answer.stop_probability === undefined ? null : `P(stop) ${small(answer.stop_probability)}`,
      answer.tokens === undefined ? null : truetune.many(answer.tokens, "token"),
      answer.overlap === undefined ? null : `overlap ${answer.overlap.toFixed(2)}`,
      answer.exact ? "the reference, word for word" : null,
      answer.agrees === undefined ? null : answer.agrees ? "agrees" : "does not agree",
      answer.faults && answer.faults.length > 1 ? `also: ${answer.faults.slice(1).map((fault) => data.said[fault] || fault).join(", ")}` : null,
    ].filter(Boolean);
    const shown = parts ? parts.map(([words, same]) => same ? words : make(tag, {}, words)) : [answer.text];
    return make("div", { class: now ? "s-column s-now" : "s-column" },
      make("p", { class: "s-head" }, title ? make("b", {}, title) : null, title ? " " : null, badge(answer), make("span", { class: "place" }, ` ${facts.join(", ")}`)),
      make("div", { class: "samples-text", dir: "auto" }, ...(answer.text ? shown : [make("i", {}, "nothing")])),
      ...(answer.words || []).map((said) => make("p", { class: "place" }, said)));
  }

  function short(value) { return String(Number(value.toFixed(3))); }
  function small(value) { return value && value < 0.001 ? value.toExponential(1) : value.toFixed(2); }
  function text(name, value) { return make("div", { class: "s-asked" }, make("span", { class: "place" }, name), make("div", { class: "samples-text", dir: "auto" }, value)); }

  /* Both texts as [words, is it in the other], by their longest common subsequence of words. */
  function difference(a, b) {
    const one = a.match(/\s+|[^\s]+/g) || [], two = b.match(/\s+|[^\s]+/g) || [];
    let start = 0, end = 0;
    while (start < one.length && start < two.length && one[start] === two[start]) start++;
    while (end < one.length - start && end < two.length - start && one.at(-1 - end) === two.at(-1 - end)) end++;
    const x = one.slice(start, one.length - end), y = two.slice(start, two.length - end), width = y.length + 1;
    const inX = x.map(() => false), inY = y.map(() => false);
    if (x.length * y.length <= CELLS) {
      const best = new Uint16Array((x.length + 1) * width);
      for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--)
        best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1] + 1 : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      for (let i = 0, j = 0; i < x.length && j < y.length;) {
        if (x[i] === y[j]) { inX[i++] = true; inY[j++] = true; } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i++; else j++;
      }
    }
    const head = one.slice(0, start), tail = one.slice(one.length - end);
    return [[x, inX], [y, inY]].map(([words, same]) => joined([...head, ...words, ...tail], [...head.map(() => true), ...same, ...tail.map(() => true)]));
  }
  function joined(words, same) {
    const made = [];
    words.forEach((word, i) => {
      const last = made.at(-1), alike = same[i] && (word.trim() !== "" || same[i - 1] !== false || same[i + 1] !== false);
      if (last && (last[1] === alike)) last[0] += word; else made.push([word, alike]);
    });
    return made;
  }
};
for (const id of ["samples", "looks", "rollouts"]) truetune.section(id, truetune.answers);
