"""The rehearsal itself: a record of the run, then a few rows memorised and recited by a miniature of its model."""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from truetune.errors import UsageError
from truetune.probe import miniature, pairs
from truetune.probe.asked import Asked, asked, marker, served
from truetune.probe.batches import Peeked, peek
from truetune.probe.border import compact
from truetune.probe.laws import measure
from truetune.probe.memorise import LONGEST, Example, Learned, examples, memorise
from truetune.probe.observe import observe, trial_of, unwrapped, wanted
from truetune.probe.ready import ready
from truetune.probe.record import Record
from truetune.probe.say import MOST, SPARE, Said, compared, forced, say
from truetune.probe.shrink import SHRUNK

ROWS = 6
GIVEN = 256
"""Given rows among which those of the examples are looked for"""
STATE = ("model_wrapped", "ref_model", "optimizer", "_metrics", "_total_train_tokens")
"""What of a trainer a step changes"""
SECONDS = 40.0
"""After so many no further step of memorising is begun"""


@dataclass
class Part:
    """One row that is memorised and recited."""

    example: Example
    given: Asked | None
    trained: list[int]
    """Prompt ids as they are in the row"""
    prompt: list[int]
    """Prompt ids as they will be served"""
    gold: list[int]
    """The answer as it is in the row, without its stop token"""
    reference: str
    kind: str
    """chat, columns, labels, marker, text: how prompt and answer were told apart"""
    closed: bool
    """Does a stop token follow the answer in the row?"""


def rehearse(
    trainer: Any, orders: dict[str, Any] | None = None, loader: Any = None, given: Any = None, folder: Any = None
) -> Record:
    """A record of this trainer's run with `facts["recitation"]`; the trainer is as before afterwards.

    `orders`: laws (quick, all, none, or names), batches, rows. Raises what the user's data set or collator raises.
    """
    orders, started = orders or {}, time.perf_counter()
    folder = Path(folder or tempfile.mkdtemp(prefix="truetune-"))
    own = orders.get("mode") == "rehearse"
    with ready(trainer, loader) as (loader, tokenizer), _stand_in(trainer, own) as model:
        record = observe(
            folder, model=model, loader=loader, tokenizer=tokenizer, trainer=trainer, given=given,
            count=orders.get("batches", 8),
        )  # fmt: skip
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        record.facts["recitation"] = _rehearsed(trainer, model, loader, tokenizer, given, orders, record, started)
    record.facts["notes"] += miniature.notes
    return record


def _rehearsed(trainer: Any, model: Any, loader: Any, tokenizer: Any, given: Any, orders: dict[str, Any],
               record: Record, started: float) -> dict[str, Any]:  # fmt: skip
    notes = record.facts["notes"]
    peeked, kind = peek(loader, orders.get("batches", 8)), record.facts["trainer"]["kind"]
    found = examples(loader.dataset, loader.collate_fn)
    stops = stops_of(model, tokenizer)
    questions = _questions(given)
    parts = [] if tokenizer is None else _parts(found, questions, tokenizer, stops, orders.get("rows", ROWS))
    reference = getattr(trainer, "ref_model", None)
    vocabulary = _compacted(model, reference, peeked, found, parts, tokenizer, stops, notes)
    laws = wanted(orders.get("laws", "quick"))
    if peeked and laws:
        trial = trial_of(unwrapped(model), peeked, loader, tokenizer, trainer, None, kind)
        record.facts["laws"] = measure(trial, laws)
    facts: dict[str, Any] = {"shape": _shape(model), "vocabulary": vocabulary, "rows": [], "loss": [], "stops":
                             sorted(stops), "kind": kind}  # fmt: skip
    if kind != "sft" and found and len(found[0].lines) > 1:
        facts |= pairs.rehearsed(trainer, model, loader, found, tokenizer, stops, started + SECONDS)
    elif parts:
        batch = _moved(loader.collate_fn([part.example.row for part in parts]), model)
        learned = memorise(model, _loss(trainer), batch, until=started + SECONDS)
        facts |= {"loss": learned.losses, "steps": len(learned.losses), "fell": learned.fell,
                  "rows": _recited(model, parts, tokenizer, stops, learned)}  # fmt: skip
    else:
        notes.append("nothing could be recited: " + ("there is no tokenizer" if tokenizer is None else
                                                     "the collator gives no input_ids"))  # fmt: skip
    return facts | {"seconds": round(time.perf_counter() - started, 2)}


def _loss(trainer: Any) -> Any:
    return trainer.compute_loss if trainer is not None else lambda model, inputs: model(**inputs).loss


@contextmanager
def _stand_in(trainer: Any, own: bool) -> Iterator[Any]:
    """A miniature in the place of the trainer's model, as often as the trainer holds it.

    In a process of our `own` a model that is one already stays.
    """
    model = trainer.model
    inner = innermost(model)
    if not hasattr(inner, "config"):
        raise UsageError(f"a rehearsal needs a model of transformers, and {type(inner).__name__} has no configuration")
    if own and getattr(inner.config, SHRUNK, False):
        yield model
        return
    small = rebuilt(model)
    reference = getattr(trainer, "ref_model", None)
    kept = {name: value for name, value in vars(trainer).items() if value is model or name in STATE}
    kept["_metrics"] = copy.deepcopy(kept.get("_metrics"))
    handler = trainer.callback_handler.model
    for name, value in kept.items():
        if value is model or name == "model_wrapped":
            setattr(trainer, name, small)
    if reference is not None:
        trainer.ref_model = rebuilt(reference)
    if trainer.optimizer is not None:
        trainer.optimizer = None
        trainer.create_optimizer()
    trainer.callback_handler.model = small
    try:
        yield small
    finally:
        vars(trainer).update(kept)
        trainer.callback_handler.model = handler


def innermost(model: Any) -> Any:
    """The model of transformers inside PEFT's and others'."""
    model = unwrapped(model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def stops_of(model: Any, tokenizer: Any) -> set[int]:
    """Ids at which a server stops: generation_config's and the tokenizer's."""
    generation = getattr(innermost(model), "generation_config", None)
    ids = getattr(generation, "eos_token_id", None)
    found = set(ids if isinstance(ids, list | tuple) else [ids])
    return {int(id) for id in found | {getattr(tokenizer, "eos_token_id", None)} if id is not None}


def _questions(given: Any) -> list[Asked]:
    if given is None or not hasattr(given, "__getitem__") or not hasattr(given, "__len__"):
        return []
    found = (asked(given[number], number) for number in range(min(len(given), GIVEN)))
    return [row for row in found if row is not None]


def _parts(
    found: list[Example], questions: list[Asked], tokenizer: Any, stops: set[int], count: int
) -> list[Part]:  # fmt: skip
    """The shortest documents, of different given rows."""
    texts = [" ".join(tokenizer.decode(example.ids, skip_special_tokens=True).split()) for example in found]
    begins = marker(tokenizer)
    short = sorted(range(len(found)), key=lambda i: (len(found[i].ids) > LONGEST, len(found[i].ids)))
    made: list[Part] = []
    seen: set[str] = set()
    for i in short:
        if len(made) == count or (made and len(found[i].ids) > LONGEST):
            break
        question = next((q for q in questions if _holds(texts[i], q)), None)
        part = _part(found[i], question, tokenizer, stops, begins)
        if part is not None and tuple(part.prompt) not in seen:
            seen.add(tuple(part.prompt))  # type: ignore[arg-type]
            made.append(part)
    return made


def _holds(text: str, question: Asked) -> bool:
    wanted = " ".join(question.question.split())
    return bool(wanted) and wanted in text


def _part(example: Example, given: Asked | None, tokenizer: Any, stops: set[int], begins: list[int]) -> Part | None:
    ids, labels = example.ids, example.labels
    start, kind = _start(ids, labels, given, tokenizer, begins)
    trained = ids[:start]
    prompt = (served(given, tokenizer) if given is not None and given.chat else None) or trained
    if ids[: len(prompt)] == prompt:
        trained = prompt
    end = next((i for i in range(len(trained), len(ids)) if ids[i] in stops), len(ids))
    gold = ids[len(trained) : end]
    if not prompt or not gold:
        return None
    reference = given.answer if given is not None else tokenizer.decode(gold, skip_special_tokens=True)
    return Part(example, given, trained, prompt, gold, reference, kind, end < len(ids))


def _start(
    ids: list[int], labels: list[int] | None, given: Asked | None, tokenizer: Any, begins: list[int]
) -> tuple[int, str]:
    """Where the answer begins, and by what that is known."""
    kind = "chat" if given is not None and given.chat else "columns"
    answer = _place(ids, given.answer.strip(), tokenizer) if given is not None else None
    for i in range(len(ids) if answer is None else answer, len(begins) - 1, -1) if begins else ():
        if ids[i - len(begins) : i] == begins:
            return i, kind if given is not None else "marker"
    if answer is not None:
        return answer, kind
    if labels is not None and -100 in labels and any(label != -100 for label in labels):
        last = max(i for i, label in enumerate(labels) if label != -100)
        return max((i + 1 for i in range(last) if labels[i] == -100), default=0), "labels"
    if given is not None and (at := _place(ids, given.question.strip(), tokenizer, end=True)) is not None:
        return at, kind
    return max(min(8, len(ids) // 2), len(ids) // 4), "text"


def _place(ids: list[int], text: str, tokenizer: Any, *, end: bool = False) -> int | None:
    """The token at which a text begins (or behind its end), at its last place; None where it is not there."""
    whole = tokenizer.decode(ids)
    at = whole.rfind(text)
    if at < 0 or not text:
        return None
    at += len(text) if end else 0
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if len(tokenizer.decode(ids[: middle + 1])) > at:
            high = middle
        else:
            low = middle + 1
    return low


def _compacted(model: Any, reference: Any, peeked: list[Peeked], found: list[Example], parts: list[Part],
               tokenizer: Any, stops: set[int], notes: list[str]) -> dict[str, Any]:  # fmt: skip
    """Cut the miniature's vocabulary to the ids that occur; the whole one where that can't be."""
    inner = innermost(model)
    into = inner.get_input_embeddings() if hasattr(inner, "get_input_embeddings") else None
    rows = getattr(into, "num_embeddings", 0)
    ids: set[int] = set(stops) | set(getattr(tokenizer, "all_special_ids", []) or [])
    for batch in peeked:
        for value in batch.inputs.values():
            if isinstance(value, torch.Tensor) and not value.is_floating_point() and value.numel():
                ids |= set(value.unique().tolist())
    ids |= {id for example in found for line, _ in example.lines for id in line}
    ids |= {id for part in parts for id in part.prompt}
    config = getattr(inner, "config", None)
    pads = [getattr(config, name, None) for name in ("pad_token_id", "bos_token_id")]
    ids |= {id for id in pads if isinstance(id, int)}
    if rows < 4 * len(ids):
        return {"size": rows, "kept": rows}
    try:
        border = compact(inner, ids)
        if reference is not None:
            compact(innermost(reference), ids)
    except (ValueError, AttributeError, TypeError) as error:
        notes.append(f"the vocabulary could not be compacted ({error}): the rehearsal takes longer")
        return {"size": rows, "kept": rows}
    return {"size": rows, "kept": len(border.ids)}


def _recited(
    model: Any, parts: list[Part], tokenizer: Any, stops: set[int], learned: Learned
) -> list[dict[str, Any]]:  # fmt: skip
    limits = [min(len(part.gold), MOST) + SPARE for part in parts]
    answers = say(model, [part.prompt for part in parts], stops, limits)
    differing = [i for i, part in enumerate(parts) if part.trained != part.prompt and part.trained]
    again = say(model, [parts[i].trained for i in differing], stops, [limits[i] for i in differing])
    trained = dict(zip(differing, again, strict=True))
    return [_row(model, part, answers[i], trained.get(i), tokenizer, stops) for i, part in enumerate(parts)]


def _row(
    model: Any, part: Part, said: Said, trained: Said | None, tokenizer: Any, stops: set[int]
) -> dict[str, Any]:  # fmt: skip
    gold = tokenizer.decode(part.gold, skip_special_tokens=True)
    thought = forced(model, part.trained or part.prompt, part.gold, stops)
    also = gold if part.given is None or _only_framed(gold, part) else ""
    made = compared(said, part.reference, tokenizer, also=also)
    others = part.given.others if part.given is not None else {}
    labels = part.example.labels
    begin = len(part.trained)
    return made | {
        "index": part.example.index,
        "number": part.given.number if part.given is not None else None,
        "kind": part.kind,
        "question": part.given.question if part.given is not None else tokenizer.decode(part.trained[-40:]),
        "reference": part.reference.strip(),
        "field": next((name for name, text in others.items() if _same(made["said"], text)), None),
        "echo": part.given is not None and len(made["said"]) > 8 and _begins(part.given.question, made["said"]),
        "trained": None if trained is None else compared(trained, part.reference, tokenizer, also=also),
        "prompt": _difference(part, tokenizer),
        "closed": part.closed,
        "right": thought.right,
        "stop_after": thought.stop_after,
        "stop_inside": thought.stop_inside,
        "supervised": None if labels is None else sum(x != -100 for x in labels[begin : begin + len(part.gold)]),
        "answer": len(part.gold),
    }


def _only_framed(gold: str, part: Part) -> bool:
    """Is the reference in the row's answer, with nothing but the template's own text before it?"""
    before, found, _ = gold.partition(part.reference.strip())
    assert part.given is not None
    texts = [part.given.question, *part.given.others.values()]
    return bool(found) and not any(text.strip() and text.strip() in before for text in texts)


def _same(said: str, text: str) -> bool:
    return bool(text.strip()) and said.startswith(text.strip())


def _begins(question: str, said: str) -> bool:
    question, said = " ".join(question.split()), " ".join(said.split())
    return len(question) > 8 and (said.startswith(question) or question.startswith(said))


def _difference(part: Part, tokenizer: Any) -> dict[str, Any] | None:
    """Where the served prompt leaves the trained one, in ids; None where it does not."""
    if part.trained == part.prompt:
        return None
    both = zip(part.trained, part.prompt, strict=False)
    first = next((i for i, (a, b) in enumerate(both) if a != b), min(len(part.trained), len(part.prompt)))
    shown = slice(max(first - 2, 0), first + 6)
    return {"first": first, "trained": tokenizer.decode(part.trained[shown]),
            "served": tokenizer.decode(part.prompt[shown]),
            "lengths": [len(part.trained), len(part.prompt)]}  # fmt: skip


def rebuilt(model: Any) -> Any:
    """A miniature of a model in memory, with PEFT's adapters and what a trainer has put around its forward."""
    from truetune.probe.rebind import rebind

    inner = innermost(model)
    small = miniature.miniature_of(inner)
    rebind(inner, small)
    for parameter, twin in zip(inner.parameters(), small.parameters(), strict=False):
        twin.requires_grad_(parameter.requires_grad)
    small.train(model.training)
    if inner is unwrapped(model):
        return small
    from peft import get_peft_model

    with suppress(Exception):
        return get_peft_model(small, copy.deepcopy(model.active_peft_config))
    miniature.note("the adapter is left out: the miniature's layers have other names")
    return small


def _moved(batch: Any, model: Any) -> dict[str, Any]:
    device = next(model.parameters()).device
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in dict(batch).items()}


def _shape(model: Any) -> dict[str, Any]:
    inner = innermost(model)
    config = inner.config.get_text_config() if hasattr(getattr(inner, "config", None), "get_text_config") else None
    return {
        "class": type(inner).__name__,
        "parameters": sum(p.numel() for p in inner.parameters()),
        "layers": getattr(config, "num_hidden_layers", None),
        "width": getattr(config, "hidden_size", None),
        "of": {name: miniature.real.get("config", {}).get(name) for name in ("num_hidden_layers", "hidden_size")},
    }
