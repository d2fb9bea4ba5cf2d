"""Examples of rules on what a run leaves: its log, and saved weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from truetune.report.rule_pages.example_files import (
    Example,
    ExampleFile,
    fact_lines,
    file_of_measured_facts,
    json_file,
)

STATE = "trainer_state.json"
OUTPUT = "run.log"
SHOWN_RECORDS = 14
"""Of a long log: enough to see the form of its curves"""
CHECKPOINT = "checkpoint"
OBJECTS = ("config", "adapter_config", "generation_config", "tokenizer_config", "trainer_state")
"""JSON files of a checkpoint, by their keys in an example"""
WIDTH, VOCABULARY = 16, 64
LLAMA_CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 4,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": True,
}
"""Of the small Llama that examples with `llama` save"""
LORA_CONFIG: Mapping[str, Any] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "base_model_name_or_path": "acme/base",
    "task_type": "CAUSAL_LM",
}
"""Of the adapter that examples with `lora` save"""
FACTS_OF_LOGS: Mapping[str, str] = {
    "data": "the data",
    "beside": "other runs beside this one",
    "runs": "other runs beside this one",
    "rows": "the rows of the settings",
    "gpus": "nvidia-smi (memory in MiB, busy in %)",
}
FILLS: Mapping[str, str] = {
    "random": "random values",
    "zero": "all zero",
    "one": "all one",
    "nan": "NaN",
}


def example_of_log(block: Mapping[str, Any]) -> Example:
    """An example of a rule on logs: what the run printed, or its trainer_state.json."""
    if "output" in block:
        files = [ExampleFile(OUTPUT, block["output"])]
    else:
        records = block.get("log") or records_of_curves(block["curve"])
        text = _state_text(records, block.get("state") or {})
        files = [ExampleFile(STATE, text, records_to_show=SHOWN_RECORDS)]
    if "config" in block:
        files.append(json_file("config.json", block["config"]))
    files += [
        file_of_measured_facts(title, block[key])
        for key, title in FACTS_OF_LOGS.items()
        if key in block
    ]
    return Example(tuple(files))


def records_of_curves(curves: Mapping[str, Mapping[str, Any]]) -> list[dict[str, float]]:
    """The records of a log whose curves are described.

    Args:
        curves: by name: `from` and `to`, or `values` between which lines are drawn; `steps`,
            `noise`, and `every` how many steps there is a record. Those whose name begins with
            `eval_` get records of their own.

    Returns:
        A record for each step that was logged, in order.
    """
    records: dict[tuple[bool, int], dict[str, float]] = {}
    for number, (name, form) in enumerate(curves.items()):
        points = form.get("values") or [form["from"], form.get("to", form["from"])]
        every = form.get("every", 1)
        steps = np.arange(every, form.get("steps", 100) + 1, every)
        values = np.interp(np.linspace(0, 1, steps.size), np.linspace(0, 1, len(points)), points)
        # A seed for each curve: two curves of the same form must not have the same noise.
        values += np.random.default_rng(number).normal(0, form.get("noise", 0), steps.size)
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            records.setdefault((name.startswith("eval_"), step), {"step": step})[name] = value
    return [records[key] for key in sorted(records, key=lambda key: (key[1], key[0]))]


def _state_text(records: list[dict[str, Any]], state: Mapping[str, Any]) -> str:
    """A trainer_state.json with a record a line, as nobody could read a hundred records otherwise."""
    head = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in state.items())
    lines = ",\n".join(f"    {json.dumps(_rounded(record))}" for record in records)
    return f'{{\n{head}  "log_history": [\n{lines}\n  ]\n}}\n'


def _rounded(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in record.items()
    }


def example_of_checkpoint(block: Mapping[str, Any]) -> Example:
    """An example of a rule on saved weights: the JSON files of its folder, and what its tensors
    are.
    """
    files = list(_files_of_checkpoint(block, CHECKPOINT))
    for name in ("base", "adapter"):
        if name in block:
            files += _files_of_checkpoint(block[name], name)
    notes: tuple[str, ...] = ()
    if "merge" in block:
        times = block["merge"]
        notes = (f"`{CHECKPOINT}` is `base` with `adapter` merged at {times} times its strength.",)
    return Example(tuple(files), notes)


def objects_of_checkpoint(block: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The JSON objects of a checkpoint, by their names in an example; an edit of null takes a key
    out.
    """
    objects: dict[str, dict[str, Any]] = {name: {} for name in OBJECTS}
    if "llama" in block:
        objects["config"] = {**LLAMA_CONFIG, "num_hidden_layers": block["llama"]}
    if "lora" in block:
        objects["adapter_config"] = {**LORA_CONFIG, "target_modules": block["lora"]}
    for name, value in objects.items():
        edited = {**value, **(block.get(name) or {})}
        objects[name] = {key: item for key, item in edited.items() if item is not None}
    return objects


def _files_of_checkpoint(block: Mapping[str, Any], folder: str) -> Iterator[ExampleFile]:
    objects = objects_of_checkpoint(block)
    for name, value in objects.items():
        # The configuration of the small Llama says nothing about the fault, unless the example
        # edits it.
        if value and (name in block or name == "adapter_config"):
            yield json_file(f"{folder}/{name}.json", value)
    for name, body in (block.get("files") or {}).items():
        text = body if isinstance(body, str) else json.dumps(body, indent=2) + "\n"
        yield ExampleFile(f"{folder}/{name}", text)
    lines = [*_lines_on_tensors(block), *_lines_on_tokens(block)]
    if lines:
        kind = "adapter_model" if objects["adapter_config"] else "model"
        name = f"{folder}/{kind}.safetensors"
        yield ExampleFile(name, "".join(f"{line}\n" for line in lines), is_measured=True)


def _lines_on_tensors(block: Mapping[str, Any]) -> Iterator[str]:
    if "llama" in block:
        layers = block["llama"]
        yield f"the tensors of a small Llama of {layers} layer{'s' * (layers != 1)}"
    if "lora" in block:
        yield f"the tensors of a LoRA of rank {LORA_CONFIG['r']} on {', '.join(block['lora'])}"
    for name, edit in (block.get("tensors") or {}).items():
        yield f"{name}: {'missing' if edit is None else ', '.join(_words_on_tensor(edit))}"


def _words_on_tensor(edit: Mapping[str, Any]) -> Iterator[str]:
    rest = dict(edit)
    if "shape" in rest:
        yield " x ".join(map(str, rest.pop("shape")))
    if "fill" in rest:
        yield FILLS[rest.pop("fill")]
    if "moved_below" in rest:
        yield f"values below {rest.pop('moved_below')} differ in their last bit"
    if "add" in rest:
        yield f"{rest.pop('add')} is added to all values"
    if "principal" in rest:
        yield f"the part of its {rest.pop('principal')} largest singular values is in it twice"
    if "turn_rows" in rest:
        yield f"all rows are {rest.pop('turn_rows')} places further down"
    if "rows" in rest:
        rows = rest.pop("rows").items()
        yield ", ".join(f"row {row} is {value}" for row, value in rows)
    yield from fact_lines(rest) if rest else ()


def _lines_on_tokens(block: Mapping[str, Any]) -> Iterator[str]:
    if "tokens" in block:
        added = ", ".join(f"{text} as {number}" for text, number in block["tokens"].items())
        yield (
            f"beside it the tokenizer, with the added token {added}"
            if added
            else "beside it the tokenizer"
        )
