"""Encoders without anything around them: texts in memory to ids, on two cores.

`python -m bench.encoders texts DATA TOKENIZER OUT` renders the chats to OUT/texts.jsonl (one text a chat) and writes
the tokenizer to OUT/tokenizer.json; `python -m bench.encoders ENCODER OUT` encodes them and prints the seconds as
JSON; `python -m bench.encoders differ OUT` counts the texts whose ids are not those of `tokenizers`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BATCH = 1024
COMPARED = 1000
Encode = Callable[[list[str]], Any]


def _tokenizers(path: str) -> Encode:
    import tokenizers

    backend = tokenizers.Tokenizer.from_file(path)
    return lambda texts: [
        encoding.ids for encoding in backend.encode_batch(texts, add_special_tokens=False)
    ]


def _kitoken(path: str) -> Encode:
    import kitoken

    encoder = kitoken.Kitoken.from_tokenizers_file(path)
    return lambda texts: encoder.encode_all(texts, True)


def _gigatoken(path: str) -> Encode:
    import gigatoken

    encoder = gigatoken.Tokenizer(path)
    return lambda texts: encoder.encode_batch(texts, parallel=False)


ENCODERS = {"kitoken": (_kitoken, 2), "gigatoken": (_gigatoken, 2), "tokenizers": (_tokenizers, 1)}
"""How to load each, and in how many processes it runs: `tokenizers` has threads of its own."""


def render(data: str, tokenizer: str, out: Path) -> dict[str, int]:
    """Rows that the template refuses are left out, and counted."""
    from truetune.data.read_rows_as_conversations import read_conversations
    from truetune.errors import TemplateError
    from truetune.render.template_probes import make_probes
    from truetune.render.tokenizer import load_tokenizer
    from truetune.settings.run_spec import RunSpec

    loaded = load_tokenizer(tokenizer)
    renderer = make_probes(loaded, RunSpec(history="single")).renderer()
    texts = tokens = refused = 0
    with (out / "texts.jsonl").open("w") as file:
        for row in read_conversations([data]):
            try:
                [rendering] = renderer.render(row)
            except TemplateError:
                refused += 1
                continue
            file.write(json.dumps(rendering.text) + "\n")
            tokens += len(loaded.backend.encode(rendering.text, add_special_tokens=False).ids)
            texts += 1
    loaded.backend.save(str(out / "tokenizer.json"))
    return {"texts": texts, "tokens": tokens, "refused": refused}


def batches(texts: list[str]) -> Iterator[list[str]]:
    return (texts[i : i + BATCH] for i in range(0, len(texts), BATCH))


def share(encoder: str, folder: Path, first: int, step: int, ready: Any, done: Any) -> None:
    """Encode every `step`-th text, from the moment that all processes are ready and warm."""
    encode = ENCODERS[encoder][0](str(folder / "tokenizer.json"))
    texts = [json.loads(line) for line in (folder / "texts.jsonl").open()][first::step]
    encode(texts[:8])
    ready.wait()
    for batch in batches(texts):
        encode(batch)
    done.put(len(texts))


def run(encoder: str, folder: Path) -> dict[str, float | int]:
    """Seconds from the start of the first text to the end of the last."""
    processes = ENCODERS[encoder][1]
    context = multiprocessing.get_context("spawn")
    ready, done = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=share, args=(encoder, folder, i, processes, ready, done))
        for i in range(processes)
    ]
    for worker in workers:
        worker.start()
    ready.wait(timeout=120)
    began = time.perf_counter()
    texts = sum(done.get() for _ in workers)
    seconds = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return {"seconds": seconds, "rows": texts}


def differ(folder: Path) -> dict[str, int | str]:
    """By encoder: how many of the first texts have other ids, or why it can't encode them."""
    path = str(folder / "tokenizer.json")
    with (folder / "texts.jsonl").open() as file:
        texts = [json.loads(line) for _, line in zip(range(COMPARED), file, strict=False)]
    expected = _tokenizers(path)(texts)
    found: dict[str, int | str] = {}
    for name, (load, _) in ENCODERS.items():
        try:
            found[name] = sum(
                list(ids) != ours for ids, ours in zip(load(path)(texts), expected, strict=True)
            )
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "texts":
        print(json.dumps(render(arguments[0], arguments[1], Path(arguments[2]))))
    elif what == "differ":
        print(json.dumps(differ(Path(arguments[0]))))
    else:
        os.environ["TOKENIZERS_PARALLELISM"] = "true"
        print(json.dumps(run(what, Path(arguments[0]))))
