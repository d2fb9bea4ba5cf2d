/* The charts of runs: a cursor over all of them, switches, flags at findings, tables. */
truetune.section("run", (element, data) => {
  const SVG = "http://www.w3.org/2000/svg", WIDE = 2000, HIGH = 1000, ROWS = 100;
  const { make } = truetune;
  const views = [...element.querySelectorAll("[data-chart]")].map((figure) => view(figure, data.charts[figure.dataset.chart]));
  const steps = [...new Set(data.charts.flatMap((chart) => chart.lines.flatMap((line) => line.x)))].sort((a, b) => a - b);
  const state = { log: false, smooth: false, at: -1 };
  const switches = element.querySelector(".c-switches");
  if (!switches) return;
  switches.hidden = false;
  switches.addEventListener("change", (event) => { state[event.target.name] = event.target.checked; views.forEach(draw); });
  element.querySelectorAll("button.c-step").forEach((button) => button.addEventListener("click", () => {
    show(nearest(steps, Number(button.dataset.step)));
    element.querySelector(".charts").scrollIntoView({ block: "nearest" });
  }));
  const flagged = data.pins.filter((pin) => pin.step !== null);
  views.forEach(prepare);
  element.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']"), target = link && document.getElementById(link.hash.slice(1));
    if (target && target.tagName === "DETAILS") target.open = true;
  });
  truetune.cursor = (step) => show(nearest(steps, step));

  function view(figure, chart) {
    return {
      figure, chart, plot: figure.querySelector(".plot"), ground: figure.querySelector(".c-ground"),
      lines: [...figure.querySelectorAll("path.line")].filter((path) => path.closest(".lines")),
      dots: [...figure.querySelectorAll("path.dots")], values: [...figure.querySelectorAll("output.c-value")],
    };
  }

  function prepare(one, number) {
    const { plot, ground, chart } = one;
    plot.setAttribute("aria-hidden", "true");
    plot.removeAttribute("role");
    one.cursor = svg("line", { class: "c-cursor", y1: "0", y2: "100%", visibility: "hidden" });
    one.said = svg("text", { class: "c-at", y: "100%", dy: "15", "text-anchor": "middle", visibility: "hidden" });
    for (const pin of flagged) {
      const at = `${across(chart, pin.step)}%`;
      plot.append(svg("line", { class: `c-pin ${pin.severity}`, x1: at, x2: at, y1: "0", y2: "100%" }));
    }
    plot.append(one.cursor, one.said);
    flags(one, number);
    for (const [name, value] of Object.entries({ tabindex: "0", role: "slider", "aria-label": `${chart.title}: step`, "aria-valuemin": steps[0], "aria-valuemax": steps.at(-1), "aria-valuenow": steps[0], "aria-valuetext": "no step chosen" }))
      ground.setAttribute(name, value);
    const point = (event) => {
      const box = plot.getBoundingClientRect(), share = (event.clientX - box.left) / box.width;
      show(nearest(steps, chart.linear.left + share * (chart.linear.right - chart.linear.left)));
    };
    ground.addEventListener("pointermove", point);
    ground.addEventListener("pointerdown", point);
    ground.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      show(Math.max(0, Math.min(steps.length - 1, (state.at < 0 && by < 0 ? 0 : state.at) + by)));
    });
    one.figure.querySelectorAll(".c-line").forEach((button, i) => button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const path of [one.lines[i], one.dots[i]]) path.setAttribute("visibility", shown ? "visible" : "hidden");
    }));
    const table = one.figure.querySelector("details.c-values");
    table.addEventListener("toggle", () => { if (table.open && table.children.length < 2) table.append(values(chart)); });
  }

  /* One flag for the findings of a step; those of the first chart are reached by Tab. */
  function flags(one, number) {
    const strip = one.figure.querySelector(".c-flags"), by = new Map();
    for (const pin of flagged) by.set(pin.step, [...(by.get(pin.step) || []), pin]);
    for (const [step, pins] of by) {
      const worst = ["error", "warning", "info"].find((severity) => pins.some((pin) => pin.severity === severity));
      const first = pins.find((pin) => pin.severity === worst);
      const said = `step ${truetune.number(step)}: ${pins.map((pin) => `${pin.severity} ${pin.code} ${pin.message}`).join("; ")}`;
      const flag = make("a", { class: `c-flag ${worst}`, href: `#${first.href || "findings"}`, title: said, "aria-label": said, tabindex: number ? "-1" : null });
      flag.style.left = `${across(one.chart, step)}%`;
      strip.append(flag);
    }
  }

  function show(at) {
    state.at = at;
    const step = steps[at];
    for (const one of views) {
      const x = `${across(one.chart, step)}%`;
      for (const name of ["x1", "x2"]) one.cursor.setAttribute(name, x);
      one.said.setAttribute("x", x);
      one.said.textContent = truetune.number(step);
      for (const mark of [one.cursor, one.said]) mark.setAttribute("visibility", "visible");
      const values = one.chart.lines.map((line) => {
        const points = curve(line), place = before(points.x, step);
        return place < 0 ? "" : spelled(points.y[place]);
      });
      values.forEach((value, i) => { one.values[i].textContent = value; });
      one.ground.setAttribute("aria-valuenow", step);
      one.ground.setAttribute("aria-valuetext", `step ${truetune.number(step)}: ${one.chart.lines.map((line, i) => `${called(line)} ${values[i] || "not logged yet"}`).join(", ")}`);
    }
  }

  /* Lines and y axis, as the switches say. */
  function draw(one) {
    const { chart } = one, frame = (state.log && chart.log) || chart.linear, log = frame === chart.log;
    const ticks = one.plot.querySelector(".ticks-y");
    ticks.replaceChildren(...frame.ticks.flatMap(([share, label]) => [
      svg("line", { x1: "0", x2: "100%", y1: `${share}%`, y2: `${share}%`, stroke: "currentColor", "stroke-opacity": ".15" }),
      Object.assign(svg("text", { class: "axis", x: "-6", y: `${share}%`, dy: "4", "text-anchor": "end" }), { textContent: label }),
    ]));
    chart.lines.forEach((line, i) => {
      const points = curve(line), path = [], dots = [];
      let last = false;
      points.x.forEach((x, k) => {
        const y = points.y[k], known = y !== null && (!log || y > 0);
        if (known) {
          const place = `${Math.round((x - frame.left) / (frame.right - frame.left) * WIDE)} ${Math.round((1 - ((log ? Math.log10(y) : y) - frame.low) / (frame.high - frame.low)) * HIGH)}`;
          path.push(last ? `L${place}` : `M${place}h0`);
          dots.push(`M${place}h0`);
        }
        last = known;
      });
      one.lines[i].setAttribute("d", path.join(""));
      one.dots[i].setAttribute("d", dots.length <= 16 ? dots.join("") : "");
    });
    if (state.at >= 0) show(state.at);
  }

  function values(chart) {
    const known = [...new Set(chart.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const every = Math.ceil(known.length / ROWS), shown = known.filter((_, i) => i % every === 0 || i === known.length - 1);
    const rows = shown.map((step) => make("tr", {}, make("th", { scope: "row" }, truetune.number(step)), ...chart.lines.map((line) => {
      const place = line.x.indexOf(step);
      return make("td", {}, place < 0 ? "" : spelled(line.y[place]));
    })));
    const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "step"), ...chart.lines.map((line) => make("th", { scope: "col" }, called(line)))));
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${chart.title}, values` }, make("table", {}, head, make("tbody", {}, ...rows)),
      every > 1 ? make("p", { class: "place" }, `every ${every}th of ${truetune.many(known.length, "step")} that the page holds`) : null);
  }

  function curve(line) { return state.smooth && line.smooth && line.smooth.x.length ? line.smooth : line; }
  function called(line) { return data.names.length > 1 ? `${line.name} ${"AB"[line.run]}` : line.name; }
  function across(chart, step) { return (step - chart.linear.left) / (chart.linear.right - chart.linear.left) * 100; }
  function spelled(value) { return value === null ? "no number" : Number(value.toPrecision(4)).toString(); }
  function svg(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  /* The place of the last x at or below. */
  function before(xs, x) {
    let low = 0, high = xs.length;
    while (low < high) { const mid = (low + high) >> 1; if (xs[mid] <= x) low = mid + 1; else high = mid; }
    return low - 1;
  }
  function nearest(xs, x) {
    const low = Math.max(0, before(xs, x));
    return low + 1 < xs.length && xs[low + 1] - x < x - xs[low] ? low + 1 : low;
  }
});
