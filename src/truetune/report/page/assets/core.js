"use strict";
/* One name for all scripts of the page. Everything from data is put in by textContent, never as markup. */
const truetune = {
  sections: new Map(),
  /* What the token view is made of, by name: (view) => its functions; see tokens.js. */
  parts: {},
  /* Called once with the section's element and its data, when the page opens. */
  section(id, open) { this.sections.set(id, open); },

  async unpack(id) {
    const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  },

  /* An element: make("p", {class: "place", title: "x"}, "text", child, ...) */
  make(name, attributes = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  },

  number(value) { return value.toLocaleString("en-US"); },
  many(count, noun) { return `${truetune.number(count)} ${noun}${count === 1 ? "" : "s"}`; },

  /* The address with another #part; a frame without an address of its own may refuse. */
  address(hash) { return location.href.split("#")[0] + hash; },
  write(hash, how = "replaceState") {
    try { history[how](null, "", truetune.address(hash)); } catch { /* a sandbox: the page works without */ }
  },
};
