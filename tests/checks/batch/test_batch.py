"""Rules on batches (BAT019-BAT038, BAT049): what makes each fire, and healthy runs that keep them silent."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch
import transformers
import trl
from datasets import Dataset
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

import truetune
from tests.auditing import tiny
from tests.checks.pages.batch import of_ranks
from truetune.checks.rule_catalogue import find_rule

Rows = list[dict[str, Any]]
BASE = tiny.tokenizer()
CODES = (*(f"BAT0{number}" for number in range(19, 39)), "BAT049")
PROSE = [
    {"text": f"Town {i} lies at the sea, and its harbour is old. " * (1 + i % 3)} for i in range(16)
]


def found(run: Any, *, given: Any = None, **settings: Any) -> dict[str, Any]:
    """Rule -> finding, of the rules tested here."""
    settings = {"laws": "none", "batches": 8, **settings}
    report = truetune.audit(run, given=given, select=list(CODES), **settings)
    return {finding.rule: finding for finding in report.findings}


def trainer(
    rows: Rows, model: Any = None, tokenizer: Any = None, collator: Any = None
) -> transformers.Trainer:
    """A plain Trainer over rows with ids and labels."""
    tokenizer = tokenizer or BASE
    collator = collator or transformers.DataCollatorForSeq2Seq(tokenizer)
    return transformers.Trainer(
        model or tiny.model(), tiny.arguments(), collator, rows, processing_class=tokenizer
    )


def changed(change: Callable[[dict[str, Any]], None], count: int = 8) -> Rows:
    """Encoded chats, each after a change."""
    rows = tiny.encoded(tiny.chats(count))
    for row in rows:
        change(row)
    return rows


def answer(row: dict[str, Any]) -> int:
    """Where the answer of an encoded row begins."""
    return next(i for i, label in enumerate(row["labels"]) if label != -100)


def completions() -> Rows:
    return [
        {"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in tiny.chats()
    ]


def kto(rows: Rows | None = None) -> Any:
    pairs = tiny.pairs()
    rows = rows or [
        {"prompt": p["prompt"], "completion": p["chosen"], "label": bool(i % 2)}
        for i, p in enumerate(pairs)
    ]
    return trl.KTOTrainer(
        tiny.model(), ref_model=tiny.model(), args=tiny.arguments(trl.KTOConfig), processing_class=tiny.tokenizer(),
        train_dataset=Dataset.from_list(rows),
    )  # fmt: skip


def orpo() -> Any:
    return ORPOTrainer(
        tiny.model(), args=tiny.arguments(ORPOConfig), train_dataset=Dataset.from_list(tiny.pairs()),
        processing_class=tiny.tokenizer(),
    )  # fmt: skip


def lora() -> Any:
    return tiny.sft(
        model_=peft.get_peft_model(tiny.model(), peft.LoraConfig(target_modules=["q_proj"]))
    )


def pretraining(*, grouped: bool, pad: str = "<|pad|>") -> Any:
    """The LM collator on plain text, row by row or in blocks."""
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token = pad
    ids = [BASE(row["text"])["input_ids"] + [BASE.eos_token_id] for row in PROSE]
    whole = [id for row in ids for id in row]
    blocks = [whole[i : i + 32] for i in range(0, len(whole) - 32, 32)]
    rows = [{"input_ids": row} for row in (blocks if grouped else ids)]
    return trainer(
        rows, None, tokenizer, transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    )


def left() -> Any:
    tokenizer = tiny.tokenizer()
    tokenizer.padding_side = "left"
    return trainer(tiny.encoded(tiny.chats()), None, tokenizer)


HEALTHY: dict[str, tuple[Callable[[], Any], Rows]] = {
    "sft": (lambda: tiny.sft(tiny.chats(turns=2)), tiny.chats(turns=2)),
    "completion only": (lambda: tiny.sft(completions()), completions()),
    "packing": (lambda: tiny.sft(packing=True, max_length=128), tiny.chats()),
    "packing of completions": (
        lambda: tiny.sft(completions(), packing=True, max_length=128),
        completions(),
    ),
    "padding free": (lambda: tiny.sft(padding_free=True, max_length=None), tiny.chats()),
    "seq2seq collator": (lambda: trainer(tiny.encoded(tiny.chats())), tiny.chats()),
    "left padding, rotary": (left, tiny.chats()),
    "text": (lambda: tiny.sft(PROSE), PROSE),
    "text, wrapped": (
        lambda: tiny.sft(PROSE, packing=True, packing_strategy="wrapped", max_length=64),
        PROSE,
    ),
    "text, grouped": (lambda: pretraining(grouped=True), PROSE),
    "text, grouped, pad is stop": (lambda: pretraining(grouped=True, pad="<|im_end|>"), PROSE),
    "text, row by row": (lambda: pretraining(grouped=False), PROSE),
    "dpo": (tiny.dpo, tiny.pairs()),
    "kto": (kto, []),
    "lora": (lora, tiny.chats()),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_are_silent(name: str) -> None:
    make, given = HEALTHY[name]
    assert found(make(), given=Dataset.from_list(given) if given else None, canary=True) == {}


def test_orpo_appends_a_stop_token_of_its_own() -> None:
    """TRL's experimental ORPO does so behind a template whose turns end with white space, whatever it is given: no
    setting keeps it from that, and generation ends at the first, so it must not stop a run."""
    finding = found(orpo(), given=Dataset.from_list(tiny.pairs()))["stop-token-twice-in-batch"]
    assert (finding.severity, finding.count) == ("info", finding.total)
    assert finding.remedy.startswith("nothing")
    assert "the messages" not in finding.remedy


def test_stop_tokens_in_the_rows_themselves_are_the_users() -> None:
    rows = [
        {"text": BASE.apply_chat_template(row["messages"], tokenize=False)} for row in tiny.chats()
    ]
    finding = found(tiny.sft(rows), given=Dataset.from_list(rows))["stop-token-twice-in-batch"]
    assert finding.severity == "error"


def test_lines_that_share_a_length_by_chance_are_not_cut() -> None:
    """Three of eight answers have no stop token and are equally long, and all of the given text stands in them."""

    def without_stop(row: dict[str, Any]) -> None:
        if len(row["input_ids"]) == longest:
            for key in row:
                del row[key][-2:]

    encoded = tiny.encoded(tiny.chats())
    longest = max(len(row["input_ids"]) for row in encoded)
    run = trainer(changed(without_stop))
    findings = found(run, given=Dataset.from_list(tiny.chats()))
    assert "answers-cut-in-batch" not in findings


def test_images_that_the_batch_holds_as_numbers_are_used() -> None:
    from truetune.checks.recognise_prose_and_media_columns import does_batch_hold_media

    assert does_batch_hold_media("images", {"input_ids", "pixel_values", "image_grid_thw"})
    assert does_batch_hold_media("image", {"pixel_values"})
    assert does_batch_hold_media("audio", {"input_features"})
    assert does_batch_hold_media("videos", {"pixel_values_videos"})
    assert not does_batch_hold_media("images", {"input_ids", "labels"})
    assert not does_batch_hold_media("context", {"pixel_values"})


def hidden(row: dict[str, Any]) -> None:
    row["attention_mask"] = [int(label == -100) for label in row["labels"]]


def pads_in_front(row: dict[str, Any]) -> None:
    row["input_ids"][:0], row["labels"][:0] = [BASE.pad_token_id] * 3, [-100] * 3
    row["attention_mask"] = [1] * len(row["labels"])


def shifted_back(row: dict[str, Any]) -> None:
    row["labels"] = [-100, *row["labels"][:-1]]


def of_another_row(row: dict[str, Any]) -> None:
    row["labels"] = [label if label == -100 else 500 + i for i, label in enumerate(row["labels"])]


def two_stops(row: dict[str, Any]) -> None:
    at = max(i for i, label in enumerate(row["labels"]) if label == BASE.eos_token_id)
    for key in row:
        row[key].insert(at, BASE.eos_token_id)


def cut(row: dict[str, Any]) -> None:
    for key in row:
        row[key] = row[key][:26]


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], None], str, str]] = {
    "two stop tokens": (two_stops, "stop-token-twice-in-batch", "8 of 8 supervised answers"),
    "cut, no limit named": (cut, "answers-cut-in-batch", "are cut off at 26 tokens"),
    "labels shifted back": (shifted_back, "double-label-shift", "1 before their position"),
    "labels of nothing near": (of_another_row, "double-label-shift", "nor one nearby"),
    "attention hides answers": (
        hidden,
        "attention-mask-hides-text",
        "8 of 8 sequences have attention 0",
    ),
    "pads in front, attended": (pads_in_front, "padding-inside-text", "are read as text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rows(name: str) -> None:
    change, rule, message = BROKEN[name]
    findings = found(trainer(changed(change)))
    assert set(findings) == {rule}
    assert message in findings[rule].message
    assert findings[rule].cases


def test_attention_mask_that_is_the_loss_mask_is_told() -> None:
    def loss_mask(row: dict[str, Any]) -> None:
        row["attention_mask"] = [int(label != -100) for label in row["labels"]]

    finding = found(trainer(changed(loss_mask)))["attention-mask-hides-text"]
    assert finding.evidence == ("the attention mask is the loss mask: the prompts are hidden",)


def test_a_loss_of_ones_own_may_want_shifted_labels() -> None:
    class Shifted(transformers.Trainer):
        def compute_loss(
            self, model: Any, inputs: Any, return_outputs: bool = False, *_: Any, **__: Any
        ) -> Any:
            labels = inputs.pop("labels")
            logits = model(**inputs).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    rows = changed(lambda row: row.update(labels=row["labels"][1:] + [-100]))
    run = Shifted(
        tiny.model(),
        tiny.arguments(),
        transformers.DataCollatorForSeq2Seq(BASE),
        rows,
        processing_class=BASE,
    )
    assert found(run) == {}
    assert "double-label-shift" in found(trainer(rows))


def test_masked_language_labels_on_a_causal_model() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"mask_token": "<|endoftext|>"})
    torch.manual_seed(0)
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=True)
    rows = [{"input_ids": row["input_ids"]} for row in tiny.encoded(tiny.chats())]
    assert "double-label-shift" in found(trainer(rows, None, tokenizer, collator))


def test_rows_longer_than_the_limit() -> None:
    rows = [
        {"input_ids": row["input_ids"], "labels": row["labels"]}
        for row in tiny.encoded(tiny.chats())
    ]
    run = tiny.sft(rows, max_length=20, dataset_kwargs={"skip_prepare_dataset": True})
    assert "are longer than the limit of 20 tokens" in found(run)["answers-cut-in-batch"].message


def test_some_answers_cut_are_a_warning() -> None:
    chats = tiny.chats(12)
    chats[5]["messages"][1]["content"] += " and tomorrow" * 40
    finding = found(tiny.sft(chats, max_length=64), given=Dataset.from_list(chats))[
        "answers-cut-in-batch"
    ]
    assert (finding.severity, finding.count) == ("warning", 1)


@pytest.mark.parametrize("positions", [None, "counting", "anew"])
def test_packed_by_hand(positions: str | None) -> None:
    """Two rows in a line: no positions, positions that go on, and ones that begin anew under a mask of ones."""
    rows = tiny.encoded(tiny.chats())
    packed: Any = []
    for one, two in zip(rows[::2], rows[1::2], strict=True):
        line = {key: one[key] + two[key] for key in one}
        if positions:
            lengths = [len(one["labels"]), len(two["labels"])]
            anew = [i for length in lengths for i in range(length)]
            line["position_ids"] = anew if positions == "anew" else list(range(sum(lengths)))
        line["attention_mask"] = [1] * len(line["labels"])
        packed.append(line)
    loader = torch.utils.data.DataLoader(packed, collate_fn=transformers.default_data_collator)
    findings = found(
        tiny.model(),
        loader=loader,
        tokenizer=tiny.tokenizer(),
        given=Dataset.from_list(tiny.chats()),
    )
    assert "packed-without-boundaries" in findings
    assert ("overrides" in findings["packed-without-boundaries"].message) == (positions == "anew")


def test_pairs_with_different_prompts() -> None:
    rows = []
    for i, row in enumerate(tiny.pairs()):
        other = [{"role": "user", "content": f"What is for dinner on day {i}?"}]
        rows.append({"chosen": row["prompt"] + row["chosen"], "rejected": other + row["rejected"]})
    collator = trl.trainer.dpo_trainer.DataCollatorForPreference(pad_token_id=BASE.pad_token_id)
    ids = [
        {side: BASE.apply_chat_template(row[side], return_dict=False) for side in row}
        for row in rows
    ]
    batch = collator(
        [{"prompt_ids": [], "chosen_ids": r["chosen"], "rejected_ids": r["rejected"]} for r in ids]
    )
    batch["completion_mask"][:, :10] = 0
    run = tiny.dpo()
    run.data_collator = lambda examples: copy.deepcopy(batch)
    run.args.remove_unused_columns = False
    assert "different prompts" in found(run)["pair-sides-equal-or-prompts-differ"].message


def test_a_row_left_over_is_its_own_mismatch() -> None:
    """TRL rotates the answers within each map batch: the ninth of nine rows keeps its own."""
    rows = [
        {"prompt": p["prompt"], "completion": p["chosen"], "label": True} for p in tiny.pairs(9)
    ]
    finding = found(kto(rows))["kto-kl-from-matched-pair"]
    assert (finding.severity, finding.count, finding.total) == ("warning", 1, 9)


def test_an_answer_shared_by_several_rows_is_no_matched_pair() -> None:
    said = [{"role": "assistant", "content": "Yes."}]
    rows = [
        {"prompt": row["prompt"], "completion": said, "label": i % 2 == 0}
        for i, row in enumerate(tiny.pairs())
    ]
    assert "kto-kl-from-matched-pair" not in found(kto(rows))


@pytest.mark.parametrize("keys", [("labels",), ()])
def test_ranks(keys: tuple[str, ...]) -> None:
    """The same rows on both; or one without labels."""
    rows = tiny.encoded(tiny.chats(4))
    less: Any = [{key: row[key] for key in row if key not in keys} for row in rows]
    loaders = [
        torch.utils.data.DataLoader(r, collate_fn=transformers.default_data_collator)
        for r in (rows, less)
    ]
    same = of_ranks(
        loaders, tiny.model(), tiny.tokenizer(), find_rule("same-rows-on-every-rank")
    ).findings
    step = of_ranks(
        loaders, tiny.model(), tiny.tokenizer(), find_rule("ranks-out-of-step")
    ).findings
    assert (len(same), len(step)) == (1, len(keys))


def test_rows_in_the_order_of_the_file() -> None:
    rows = tiny.encoded(tiny.chats(80))
    loader = torch.utils.data.DataLoader(
        rows, batch_size=2, collate_fn=transformers.DataCollatorForSeq2Seq(BASE)
    )
    findings = found(tiny.model(), loader=loader, tokenizer=tiny.tokenizer())
    assert findings["rows-not-drawn-at-random"].severity == "info"
    assert "in the order" in findings["rows-not-drawn-at-random"].message


@pytest.mark.parametrize(("pool", "severity"), [(3, "warning"), (12, "info"), (80, None)])
def test_rows_drawn_from_a_few(pool: int, severity: str | None) -> None:
    """16 draws among the first `pool` of 80 rows: whoever meets three rows again and again never sees the others."""
    rows = tiny.encoded(tiny.chats(80))
    order = [7 * draw % pool for draw in range(16)]
    loader = torch.utils.data.DataLoader(
        rows,
        batch_size=2,
        sampler=order,
        collate_fn=transformers.DataCollatorForSeq2Seq(BASE),
    )
    findings = found(tiny.model(), loader=loader, tokenizer=tiny.tokenizer())
    finding = findings.get("rows-not-drawn-at-random")
    assert (finding and finding.severity) == severity


@pytest.mark.parametrize(
    ("is_trained", "is_named"),
    [
        (lambda name, shape: len(shape) == 1, True),
        (lambda name, shape: "norm" in name or "bias" in name, True),
        (lambda name, shape: "layers.0" in name, False),
        (lambda name, shape: True, False),
        (lambda name, shape: False, False),
    ],
)
def test_only_vectors_are_trained(
    is_trained: Callable[[str, tuple[int, ...]], bool], is_named: bool
) -> None:
    model = tiny.model()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name, tuple(parameter.shape)))
    assert ("only-norms-and-biases-are-trained" in found(model, loader=batches())) is is_named


def test_an_adapter_that_trains_norms_alone_is_meant() -> None:
    model = peft.get_peft_model(
        tiny.model(), peft.LNTuningConfig(task_type="CAUSAL_LM", target_modules=["norm"])
    )
    assert "only-norms-and-biases-are-trained" not in found(model, loader=batches())


def batches() -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(
        tiny.encoded(tiny.chats(8)),
        batch_size=2,
        collate_fn=transformers.DataCollatorForSeq2Seq(BASE),
    )


COLUMNS: dict[str, tuple[dict[str, Any], str | None]] = {
    "weights": ({"weight": 0.5}, "warning"),
    "reasoning": ({"reasoning": "One basket was opened, then another one."}, "warning"),
    "long notes": (
        {"notes": "These are the notes of the keeper, who wrote them by the window."},
        "info",
    ),
    "ids and dates": (
        {"id": "a-77", "url": "https://example.org/a/b/c", "date": "2026-01-02", "score": 0.5},
        None,
    ),
    "a copy of the question": ({"prompt": None}, None),
    "tools written again": ({"topic": "boxes, shelf, apples"}, None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_never_used(name: str) -> None:
    columns, severity = COLUMNS[name]
    rows = tiny.chats()
    for row in rows:
        row |= {
            key: row["messages"][0]["content"] if value is None else value
            for key, value in columns.items()
        }
    given = Dataset.from_list(rows)
    run = tiny.sft([{"messages": row["messages"]} for row in rows])
    findings = found(run, given=given)
    assert {finding.severity for finding in findings.values()} == (
        {severity} if severity else set()
    )
    assert set(findings) <= {"columns-never-used"}


def test_added_tokens_with_rows_that_can_change() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["<call>"])
    rows = tiny.chats()
    for row in rows:
        row["messages"][1]["content"] = "<call>" + row["messages"][1]["content"]
    cases: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"trainable_token_indices": [len(tokenizer) - 1]}, False),
    ]
    for more, fires in cases:
        model = tiny.model(len(tokenizer))
        settings = peft.LoraConfig(target_modules=["q_proj"], **more)
        findings = found(tiny.sft(rows, peft.get_peft_model(model, settings), tokenizer))
        assert ("new-token-rows-not-trained" in findings) is fires
