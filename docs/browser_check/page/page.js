// Reads the form, hands it to the worker, and draws the tokens that come back. The worker is ended where an answer takes
// too long: a chat template may never end.

const TIMEOUT_MS = 60000;
const TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json",
  "special_tokens_map.json", "added_tokens.json", "generation_config.json", "config.json"];
const byId = (id) => document.getElementById(id);
let worker = null;
let timer = 0;

function startWorker() {
  // A worker made of a blob has this page's policy; one with an address of its own would have none.
  const source = `import ${JSON.stringify(new URL("worker.js", location.href).href)};`;
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  worker = new Worker(url, { type: "module" });
  worker.onmessage = ({ data }) => {
    if (data.failure) say(data.failure, true);
    else if (data.ready) onReady(data.ready);
    else onAnswer(data);
  };
  worker.onerror = (event) => say(`The worker failed: ${event.message || "it could not be loaded"}`, true);
}

function say(text, isError = false) {
  byId("status").textContent = text;
  byId("status").className = isError ? "error" : "";
}

function onReady(version) {
  byId("show").disabled = false;
  say(`Ready: truetune ${version}.`);
  document.documentElement.dataset.ready = "";
}

function onAnswer(answer) {
  clearTimeout(timer);
  byId("show").disabled = false;
  const result = byId("result");
  result.replaceChildren();
  if (answer.error) {
    say(answer.error, true);
  } else {
    const count = answer.examples.length;
    say((count === 1 ? "One training example, " : `${count} training examples, `)
      + (answer.findings.length === 1 ? "one finding." : `${answer.findings.length || "no"} findings.`));
    answer.examples.forEach((example) => result.append(...drawExample(example)));
    result.append(...answer.findings.map(drawFinding), ...answer.not_judged.map(drawNotJudged));
  }
  document.documentElement.dataset.answered = String(Number(document.documentElement.dataset.answered || 0) + 1);
}

function drawExample(example) {
  const counts = document.createElement("p");
  const learned = example.tokens.filter((token) => token.supervised).length;
  counts.className = "counts";
  counts.textContent = `${example.tokens.length} tokens, ${learned} learned (marked)`
    + (example.turn === null ? "" : `; trains turn ${example.turn} alone`);
  const tokens = document.createElement("div");
  tokens.className = "tokens";
  for (const token of example.tokens) {
    const span = document.createElement("span");
    span.className = token.supervised ? "token learned" : "token";
    span.textContent = token.text;
    span.title = `${token.id}, ${token.source}, ${token.supervised ? "learned" : "not learned"}`;
    tokens.append(span);
    if (token.text.endsWith("↵")) tokens.append(document.createElement("br"));
  }
  return [counts, tokens];
}

function drawFinding({ rule, severity, message, remedy, cases }) {
  const finding = document.createElement("article");
  finding.className = "finding";
  finding.dataset.rule = rule;
  finding.dataset.severity = severity;
  const title = document.createElement("p");
  const name = document.createElement("b");
  name.textContent = `${severity}: ${rule}`;
  title.append(name, ` ${message}`);
  const places = cases.map((text) => {
    const place = document.createElement("p");
    place.className = "counts";
    place.textContent = text;
    return place;
  });
  const help = document.createElement("p");
  help.textContent = `help: ${remedy}`;
  finding.append(title, ...places, help);
  return finding;
}

function drawNotJudged(text) {
  const line = document.createElement("p");
  line.className = "counts not-judged";
  line.textContent = `not judged: ${text}`;
  return line;
}

async function readFiles() {
  const files = {};
  for (const file of byId("files").files) {
    if (TOKENIZER_FILES.includes(file.name)) files[file.name] = await file.arrayBuffer();
  }
  return files;
}

byId("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  byId("show").disabled = true;
  say("Rendering and encoding…");
  const learn = byId("learn").value;
  const settings = JSON.stringify(learn ? { learn } : {});
  const files = await readFiles();
  timer = setTimeout(() => {
    worker.terminate();
    say("No answer after a minute: does the chat template end? Python is loaded again.", true);
    startWorker();
  }, TIMEOUT_MS);
  worker.postMessage({ files, chat: byId("chat").value, template: byId("template").value, settings });
});

startWorker();
