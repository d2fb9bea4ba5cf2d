"""Axolotl's YAML: values that take effect, where they stand, and its data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config

QLORA = """\
base_model: some/model
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_linear: true
lora_modules_to_save: [embed_tokens, lm_head]
datasets:
  - path: rows.jsonl
    type: chat_template
    field_messages: turns
    message_property_mappings: {role: from, content: value}
    train_on_eos: last
  - path: some/rows
    type: chat_template
dataset_prepared_path: prepared
val_set_size: 0.05
sequence_len: 4096
sample_packing: true
micro_batch_size: 2
gradient_accumulation_steps: 4
num_epochs: 2
optimizer: adamw_bnb_8bit
learning_rate: 2e-4
warmup_ratio: 0.1
gradient_checkpointing: true
flash_attention: true
evals_per_epoch: 4
saves_per_epoch: 1
special_tokens: {pad_token: <|pad|>, additional_special_tokens: [<|note|>]}
tokens: [<|call|>]
deepspeed: zero.json
"""


def config(folder: Path, text: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(text)
    return read_config(path, "axolotl")


def test_values_places_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    (tmp_path / "zero.json").write_text('{"zero_optimization": {"stage": 2}}')
    found = config(tmp_path, QLORA)
    assert (found.stack, found.version, found.limit, found.unknown) == (
        "axolotl",
        "0.21.0",
        4096,
        (),
    )
    spec, training = found.spec, found.spec.training
    assert (spec.data, spec.format, spec.map) == (
        (str(tmp_path / "rows.jsonl"),),
        "sharegpt",
        {"conversations": "turns"},
    )
    assert (spec.model, spec.tokenizer, spec.max_length, spec.history) == (
        "some/model",
        "some/model",
        4096,
        "single",
    )
    assert (training.method, training.learning_rate, training.lr_scheduler_type) == (
        "sft",
        2e-4,
        "cosine",
    )
    assert (training.per_device_train_batch_size, training.per_device_eval_batch_size) == (2, 2)
    assert (training.packing, training.eval_packing, training.packing_strategy) == (
        True,
        True,
        "multipack",
    )
    assert (training.bf16, training.fp16, training.dtype, training.load_in) == (
        True,
        False,
        "bfloat16",
        4,
    )
    assert (training.eval_strategy, training.eval_steps, training.save_steps) == (
        "steps",
        0.125,
        0.5,
    )
    assert (training.use_reentrant, training.deepspeed_stage, training.save_total_limit) == (
        False,
        2,
        4,
    )
    assert (training.attn_implementation, training.max_grad_norm) == ("flash_attention_2", 1.0)
    assert (training.prepared_path, training.val_size, training.shuffle) == ("prepared", 0.05, True)
    assert (training.special_tokens, training.added_tokens) == (
        {"pad_token": "<|pad|>"},
        ("<|call|>", "<|note|>"),
    )
    assert training.lora is not None
    assert (training.lora.r, training.lora.target_modules, training.lora.use_dora) == (
        32,
        "all-linear",
        False,
    )
    assert training.other == {
        "datasets": ["some/rows"],
        "datasets.type": "chat_template",
        "datasets.train_on_eos": "last",
    }
    place = found.places["training.per_device_train_batch_size"]
    assert (place.line, place.key) == (21, "micro_batch_size")
    assert found.places["training.lora.target_modules"].key == "lora_target_linear"
    assert [(old.place.key, old.now) for old in found.renamed] == [
        ("flash_attention", "attn_implementation")
    ]
    assert "not looked at, because they are not on this machine: some/rows" in found.notes


@pytest.mark.parametrize(
    ("rl", "method", "loss"),
    [
        ("dpo", "dpo", None),
        ("ipo", "dpo", "ipo"),
        ("orpo", "orpo", None),
        ("kto", "kto", None),
        ("simpo", "cpo", "simpo"),
        ("grpo", "grpo", None),
    ],
)
def test_methods(tmp_path: Path, rl: str, method: str, loss: str | None) -> None:
    found = config(tmp_path, f"base_model: m\nrl: {rl}\nrl_beta: 0.2\ndatasets: []\n")
    assert (found.spec.training.method, found.spec.training.loss_type) == (method, loss)
    assert found.spec.training.beta == 0.2
    assert found.places["training.method"].line == 2


@pytest.mark.parametrize(
    ("settings", "strategy", "steps"),
    [
        ("val_set_size: 0.1", "no", None),
        ("val_set_size: 0.1\neval_strategy: epoch", "epoch", None),
        ("val_set_size: 0.1\neval_steps: 20", "steps", 20),
        ("val_set_size: 0.1\neval_steps: 20\neval_strategy: 'no'", "no", None),
        ("evals_per_epoch: 4", "no", None),
        ("val_set_size: 0.1\nevaluation_strategy: epoch", "no", None),
    ],
)
def test_when_it_evaluates(
    tmp_path: Path, settings: str, strategy: str, steps: float | None
) -> None:
    training = config(tmp_path, f"base_model: m\ndatasets: []\n{settings}\n").spec.training
    assert (training.eval_strategy, training.eval_steps) == (strategy, steps)
    assert training.save_strategy == "epoch"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("", (True, False, "bfloat16")),
        ("bf16:\n", (False, False, "float32")),
        ("bf16: false\nfp16: true", (False, True, "float16")),
        ("fp16: true", (False, True, "float16")),
        ("bf16: true\nfp16: true", (True, False, "bfloat16")),
        ("bf16: full", (False, False, "bfloat16")),
        ("bf16: false\nload_in_8bit: true\nadapter: lora", (False, False, "float16")),
    ],
)
def test_precision(tmp_path: Path, settings: str, expected: tuple[bool, bool, str]) -> None:
    training = config(tmp_path, f"base_model: m\ndatasets: []\n{settings}\n").spec.training
    assert (training.bf16, training.fp16, training.dtype) == expected


@pytest.mark.parametrize(
    ("item", "format", "columns"),
    [
        ("{path: rows, type: alpaca}", "alpaca", {}),
        ("{path: rows, type: alpaca_chat.load_qa}", None, None),
        ("{path: rows, type: completion, field: body}", "text", {"text": "body"}),
        ("{path: rows, type: completion}", "text", {}),
        ("{path: rows, type: chat_template}", "messages", {}),
        ("{path: rows, type: chat_template, field_messages: turns, field_tools: t}", "messages",
         {"messages": "turns", "tools": "t"}),
        ("{path: rows, type: chat_template, message_property_mappings: {role: who, content: says}}", "messages",
         {"message.role": "who", "message.content": "says", "role.user": "human", "role.assistant": "gpt"}),
        ("{path: rows, type: chat_template, message_field_role: from, message_field_content: value}", "sharegpt",
         {"conversations": "messages"}),
        ("{path: rows, type: chat_template, roles: {user: [customer], assistant: [agent, bot]}}", "messages",
         {"role.user": "customer", "role.assistant": "agent,bot"}),
        ("{path: rows, type: {field_instruction: q, field_output: a, format: '{instruction}'}}", "alpaca",
         {"instruction": "q", "output": "a"}),
        ("{path: rows, type: input_output}", None, None),
        ("rows", None, {}),
    ],
)  # fmt: skip
def test_data_sets(
    tmp_path: Path, item: str, format: str | None, columns: dict[str, str] | None
) -> None:
    (tmp_path / "rows").mkdir()
    found = config(tmp_path, f"base_model: m\ndatasets:\n  - {item}\n")
    if columns is None:
        assert found.spec.data == ()
        assert any(note.startswith("rows: not looked at: ") for note in found.notes)
        assert found.spec.training.other["datasets"] == ["rows"]
    else:
        assert (found.spec.data, found.spec.format, found.spec.map) == (
            (str(tmp_path / "rows"),),
            format,
            columns,
        )


def test_files_of_a_data_set_and_of_the_evaluation(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        (tmp_path / name).write_text("")
    found = config(
        tmp_path,
        "base_model: m\ndatasets:\n- {path: json, data_files: [a.jsonl, b.jsonl], type:"
        " chat_template}\n- {path: c.jsonl, type: alpaca}\ntest_datasets: [{path: c.jsonl, type:"
        " chat_template}]\n",
    )
    assert found.spec.data == (str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl"))
    assert found.spec.eval_data == (str(tmp_path / "c.jsonl"),)
    assert "c.jsonl: not looked at: the columns are not those of json" in found.notes


def test_rows_that_truetune_cannot_look_at(tmp_path: Path) -> None:
    (tmp_path / "encoded.jsonl").write_text(
        '{"input_ids": [1], "labels": [1], "attention_mask": [1]}\n'
    )
    (tmp_path / "prose.txt").write_text("Once")
    found = config(
        tmp_path, "base_model: m\ndatasets:\n- {path: encoded.jsonl, type: }\n- {path: prose.txt}\n"
    )
    assert found.spec.data == ()
    assert "encoded.jsonl: not looked at: its rows are encoded already" in found.notes
    assert "prose.txt: not looked at: truetune reads no .txt files" in found.notes


def test_what_has_no_effect(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        "base_model: m\ndatasets: []\nmicro_batchsize: 4\nliger_rope: true\nfsdp: [full_shard]\n",
    )
    assert [place.key for place in found.unknown] == ["micro_batchsize", "liger_rope", "fsdp"]
    assert (found.limit, found.spec.max_length) == (512, None)
    inner = config(
        tmp_path, "base_model: m\ndatasets:\n- {path: x, typ: alpaca}\nmicro_batch_size: 1\n"
    ).unknown
    assert [(place.line, place.key, place.column) for place in inner] == [(3, "datasets.0.typ", 13)]
    with_plugin = "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n"
    assert config(tmp_path, f"base_model: m\ndatasets: []\n{with_plugin}").unknown == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "micro_batch_size: two",
            "config.yaml:3: micro_batch_size: input should be a valid integer",
        ),
        ("adapter: lora\nlora_r: 0", "config.yaml:4: lora_r: input should be greater than 0"),
        ("special_tokens: <pad>", "config.yaml:3: special_tokens: expected keys and values"),
    ],
)
def test_values_of_the_wrong_kind(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError) as error:
        config(tmp_path, f"base_model: m\ndatasets: []\n{text}\n")
    assert said in str(error.value)


def test_a_data_set_of_the_wrong_kind(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"config.yaml:3: datasets.0.path: expected a path or a name, found \['a'\]"
    ):
        config(tmp_path, "base_model: m\ndatasets:\n  - path: [a]\n")


def test_templates(tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text("{{ messages }}")
    found = config(
        tmp_path,
        "base_model: m\ndatasets: []\nchat_template: jinja\nchat_template_jinja: own.jinja\n",
    )
    assert found.spec.template == str(tmp_path / "own.jinja")
    found = config(tmp_path, "base_model: m\ndatasets: []\nchat_template: chatml\n")
    assert found.spec.template is None
    assert any("chatml is Axolotl's own" in note for note in found.notes)
    assert found.own_prompt
    assert not config(
        tmp_path, "base_model: m\ndatasets: []\nchat_template: tokenizer_default\n"
    ).own_prompt
