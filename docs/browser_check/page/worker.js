// Runs truetune in Pyodide, and the Rust library `tokenizers`, compiled to WebAssembly, beside it.

import { loadPyodide } from "./pyodide/pyodide.mjs";
import "./web-tokenizers.js";

const TokenizerOfPage = globalThis.tokenizers.Tokenizer;
// The library makes a tokenizer in two steps, of which the first, loading itself, has to be waited for. With one made,
// the second is taken alone, since Python calls from inside a function that can't wait.
const SMALLEST = {
  version: "1.0", truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: null,
  post_processor: null, decoder: null,
  model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null,
    fuse_unk: false, byte_fallback: false, vocab: { a: 0 }, merges: [] },
};
const made = [];
const bytesOf = (text) => new TextEncoder().encode(text).buffer;

async function makeEngine() {
  const smallest = await TokenizerOfPage.fromJSON(bytesOf(JSON.stringify(SMALLEST)));
  const Handle = smallest.handle.constructor;
  return (json) => {
    const tokenizer = new TokenizerOfPage(Handle.FromBlobJSON(bytesOf(json)));
    made.push(tokenizer);
    const encoder = (text) => Array.from(tokenizer.encode(text));
    encoder.decode = (ids) => tokenizer.decode(Int32Array.from(ids));
    return encoder;
  };
}

async function start() {
  const pyodide = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  const answer = await fetch(new URL("./python.zip", import.meta.url));
  pyodide.FS.mkdirTree("/python");
  pyodide.unpackArchive(await answer.arrayBuffer(), "zip", { extractDir: "/python" });
  pyodide.FS.mkdirTree("/pasted");
  pyodide.registerJsModule("page_engine", { make_encoder: await makeEngine() });
  pyodide.runPython("import sys; sys.path.insert(0, '/python')\nimport page_engine, tokenizers\n"
    + "tokenizers.ENGINE = page_engine.make_encoder\nimport show_pasted_chat, truetune.package");
  const show = pyodide.runPython("show_pasted_chat.show_pasted_chat");
  const version = pyodide.runPython("truetune.package.__version__");
  self.onmessage = ({ data }) => self.postMessage(showChat(pyodide, show, data));
  self.postMessage({ ready: version });
}

function showChat(pyodide, show, { files, chat, template, settings }) {
  // Those of the chat before: their memory is not the garbage collector's.
  made.splice(0).forEach((tokenizer) => tokenizer.dispose());
  for (const name of pyodide.FS.readdir("/pasted").filter((name) => name !== "." && name !== "..")) {
    pyodide.FS.unlink(`/pasted/${name}`);
  }
  for (const [name, content] of Object.entries(files)) {
    pyodide.FS.writeFile(`/pasted/${name}`, new Uint8Array(content));
  }
  try {
    return JSON.parse(show(chat, template, settings));
  } catch (error) {
    return { error: `truetune failed: ${String(error.message || error).trim().split("\n").pop()}` };
  }
}

start().catch((error) => self.postMessage({ failure: `Python can't be loaded: ${error.message || error}` }));
