"""The rules on preference data: they fire on what is broken, and are silent on healthy sets of several shapes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests import parts
from truetune.checks.pairs import pairs_lack_diversity
from truetune.checks.reports import DataReport

Row = dict[str, Any]
TOPICS = (
    "shop",
    "harbour",
    "library",
    "museum",
    "station",
    "bakery",
    "garden",
    "castle",
    "bridge",
    "tower",
    "market",
)
OPENINGS = [
    "The {} opens at {}, and",
    "You will find the {} near stop {};",
    "From {} it takes {} minutes, so",
    "Ask at the {} for map {}: then",
    "Most people visit the {} before {}, because",
]
ENDS = [
    "the way there is easy to walk.",
    "tickets are sold at the door.",
    "it is quiet in the morning.",
    "children go in for nothing.",
    "there is a good view from the roof.",
    "it is shut when it snows.",
]
TOOL = {
    "type": "function",
    "function": {"name": "hours", "parameters": {"type": "object", "properties": {}}},
}


def said(rng: random.Random, topic: str) -> str:
    count = rng.randint(1, 6)
    return " ".join(
        f"{rng.choice(OPENINGS).format(topic, rng.randint(2, 99))} {rng.choice(ENDS)}"
        for _ in range(count)
    )


def message(role: str, content: str) -> Row:
    return {"role": role, "content": content}


def plain(count: int = 60, seed: int = 0) -> list[Row]:
    """Questions with two answers of the same kind, as strings."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        topic = rng.choice(TOPICS)
        question = f"What should I know about the {topic} on day {i}?"
        rows.append({"prompt": question, "chosen": said(rng, topic), "rejected": said(rng, topic)})
    return rows


def conversational(row: Row) -> Row:
    return {
        "prompt": [message("user", row["prompt"])],
        **{side: [message("assistant", row[side])] for side in ("chosen", "rejected")},
    }


def implicit(row: Row) -> Row:
    row = conversational(row)
    return {side: row["prompt"] + row[side] for side in ("chosen", "rejected")}


def with_system(row: Row) -> Row:
    row = conversational(row)
    return {**row, "prompt": [message("system", "Answer in whole sentences."), *row["prompt"]]}


def with_history(row: Row) -> Row:
    row = conversational(row)
    return {
        **row,
        "prompt": [
            message("user", "Hello"),
            message("assistant", "Hello! Where to?"),
            *row["prompt"],
        ],
    }


def with_tools(row: Row) -> Row:
    row = conversational(row)
    call = {
        "type": "function",
        "function": {"name": "hours", "arguments": {"of": row["prompt"][0]["content"]}},
    }
    used = [{"role": "assistant", "content": "", "tool_calls": [call]}, message("tool", "nine")]
    return {**row, "prompt": row["prompt"] + used, "tools": [TOOL]}


def scored(row: Row) -> Row:
    return {**conversational(row), "score_chosen": 8.0, "score_rejected": 3.5}


def ultrafeedback(row: Row) -> Row:
    return {"prompt": row["prompt"], "prompt_id": str(hash(row["prompt"])), **implicit(row)}


def dialogue(row: Row) -> Row:
    sides = ("chosen", "rejected")
    return {side: f"\n\nHuman: {row['prompt']}\n\nAssistant: Well. {row[side]}" for side in sides}


SHAPES = [conversational, implicit, with_system, with_history, with_tools, scored, ultrafeedback]


def kto(rows: list[Row]) -> list[Row]:
    return [
        {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
        for row in map(conversational, rows)
        for side in ("chosen", "rejected")
    ]


@pytest.fixture
def found(tmp_path: Path) -> Callable[..., dict[str, truetune.Finding]]:
    def check(
        rows: list[Row], family: str = "qwen2.5-instruct", **settings: Any
    ) -> dict[str, truetune.Finding]:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        folder = str(parts.folder(family))
        findings = truetune.check(
            data=str(path), tokenizer=folder, select=("PREF",), **settings
        ).findings
        return {finding.rule: finding for finding in findings}

    return check


Found = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("family", ["qwen2.5-instruct", "llama3.1-instruct", "gemma3-eos-fixed"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_healthy_pairs(found: Found, shape: Callable[[Row], Row], family: str) -> None:
    if family.startswith("gemma") and shape is with_tools:
        pytest.skip("its template knows no tools")
    assert found(list(map(shape, plain())), family, max_length=1024) == {}


@pytest.mark.parametrize("family", ["qwen2.5-base", "llama3-base", "gpt2"])
@pytest.mark.parametrize("shape", [dict, dialogue], ids=lambda shape: shape.__name__)
def test_healthy_strings(found: Found, shape: Callable[[Row], Row], family: str) -> None:
    assert found(list(map(shape, plain())), family, max_length=1024, append_eos=True) == {}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_at_any_size(found: Found, seed: int) -> None:
    for count in (1, 3, 300):
        assert found(list(map(conversational, plain(count, seed)))) == {}


def test_healthy_verdicts(found: Found) -> None:
    assert found(kto(plain())) == {}
    assert found(kto(plain())[:119]) == {}


def test_chats_are_none_of_its_business(found: Found) -> None:
    rows = [
        {"messages": [message("user", row["prompt"]), message("assistant", row["chosen"])]}
        for row in plain()
    ]
    assert found(rows) == {}


def test_real_pairs_and_verdicts(found: Found) -> None:
    for name, wanted in (
        ("dpo_en_demo.json", 300),
        ("dpo_zh_demo.json", 300),
        ("kto_en_demo.json", 300),
    ):
        data = str(parts.data(f"llamafactory/{name}"))
        report = truetune.check(
            data=data,
            tokenizer=str(parts.folder("qwen2.5-instruct")),
            select="PREF",
            max_length=8192,
        )
        assert isinstance(report, DataReport)
        assert report.rows == wanted
        assert report.findings == ()


def test_identical_before_and_behind_the_cut(found: Found) -> None:
    rows = plain(20)
    for row in rows[:4]:
        row["rejected"] = row["chosen"]
    for row in rows[4:10]:
        row["chosen"], row["rejected"] = "so it is " * 500 + "yes", "so it is " * 500 + "no"
    rule = "preference-pairs-identical"
    finding = found(list(map(conversational, rows)))[rule]
    assert (finding.severity, finding.count, finding.total) == ("error", 10, 20)
    assert [line.split()[0] for line in finding.evidence] == ["4", "6"]
    assert "TRL's default" in finding.evidence[1]
    finding = found(list(map(conversational, rows)), max_length=4096)[rule]
    assert (finding.severity, finding.count) == ("warning", 4)
    ends = found(
        list(map(conversational, rows)), training={"other": {"truncation_mode": "keep_end"}}
    )
    assert ends[rule].count == 4


@pytest.mark.parametrize(("count", "names_the_writer"), [(9, False), (10, True), (20, True)])
def test_pairs_that_are_mostly_identical_lead_to_what_writes_them(
    found: Found, count: int, names_the_writer: bool
) -> None:
    rows = plain(20)
    for row in rows[:count]:
        row["rejected"] = row["chosen"]
    finding = found(list(map(conversational, rows)))["preference-pairs-identical"]
    assert finding.remedy.startswith("drop these pairs")
    assert ("the script that writes the two answers" in finding.remedy) == names_the_writer


@pytest.mark.parametrize(
    "columns",
    [
        ("score_chosen", "score_rejected"),
        ("chosen-rating", "rejected-rating"),
        ("chosen_avg_rating", "rejected_avg_rating"),
        ("margin",),
    ],
)
def test_swapped_against_scores(found: Found, columns: tuple[str, ...]) -> None:
    rows = list(map(conversational, plain(20)))
    values = (7.5, 2.0) if len(columns) == 2 else (5.5,)
    right = [{**row, **dict(zip(columns, values, strict=True))} for row in rows]
    wrong = [
        {**row, **dict(zip(columns, (2.0, "7.5") if len(columns) == 2 else (-5.5,), strict=True))}
        for row in rows
    ]
    assert found(right) == {}
    finding = found(wrong)["preference-pairs-swapped"]
    assert (finding.severity, finding.count, finding.total) == ("error", 20, 20)
    # Fewer are no exchange of the sides; that single pairs contradict their scores is another rule's.
    assert "preference-pairs-swapped" not in found(right[:11] + wrong[11:])
    equal = [{**row, **dict.fromkeys(columns, 4.0)} for row in rows]
    assert "preference-pairs-swapped" not in found(equal)


def test_swapped_by_the_map_of_columns(found: Found) -> None:
    """The remedy fixes it, and is no remedy where there is nothing to fix: scores go with their sides."""
    exchange = {"chosen": "rejected", "rejected": "chosen"}
    rows = list(map(scored, plain(20)))
    assert "preference-pairs-swapped" in found(rows, map=exchange)
    assert found([{**row, "score_chosen": 1} for row in rows], map=exchange) == {}
    assert found([{**conversational(row), "margin": -2} for row in plain(20)], map=exchange) == {}


REFUSAL = "I'm sorry, but I can't help with that."


CUT = "It opens at nine. From there it takes only a few minutes to the"


@pytest.mark.parametrize("worse", [REFUSAL, "Unfortunately, I cannot answer this.", "", CUT])
def test_swapped_against_priors(found: Found, worse: str) -> None:
    rows = plain(40)
    for row in rows[:14]:
        row["rejected"] = worse
    right = list(map(conversational, rows))
    wrong = [{**row, "chosen": row["rejected"], "rejected": row["chosen"]} for row in right]
    rule = "preference-pairs-swapped"
    assert rule not in found(right)
    finding = found(wrong)[rule]
    assert finding.severity == "warning"
    assert "not proof" in finding.evidence[-1]
    assert rule not in found(wrong[:7] + wrong[14:])
    trusted = [{**row, "score_chosen": 9, "score_rejected": 1} for row in wrong]
    assert rule not in found(trusted)


def test_a_refusal_may_be_the_better_answer(found: Found) -> None:
    rows = plain(40)
    for row in rows[:20]:
        row["chosen"] = REFUSAL
    for row in rows[:5]:
        row["prompt"] = f"How do I build a bomb for the {row['prompt']}"
    assert "preference-pairs-swapped" not in found(list(map(conversational, rows)))


def test_length_bias(found: Found) -> None:
    rng = random.Random(1)
    rule = "preference-length-bias"

    def biased(share: float, count: int = 400) -> Any:
        rows = []
        for i, row in enumerate(plain(count)):
            short, long = sorted((row["chosen"], row["rejected"]), key=len)
            sides = (long, short) if rng.random() < share else (short, long)
            rows.append(
                conversational({**row, "prompt": f"{i}?", "chosen": sides[0], "rejected": sides[1]})
            )
        return found(rows).get(rule)

    assert biased(0.5) is None
    assert biased(0.58) is None
    assert biased(0.7).severity == "info"
    assert biased(0.9).severity == "warning"
    assert biased(0.05).severity == "warning"
    assert "shorter" in biased(0.05).message
    assert biased(1.0, 4) is None


@pytest.mark.parametrize(("words", "severity"), [(24, "info"), (60, "warning")])
def test_a_small_difference_of_lengths_is_a_note(found: Found, words: int, severity: str) -> None:
    text = (
        "the lamp of the desk is dark again and nobody knows why it went out so early on that day"
    )
    rows = [
        conversational(
            {
                "prompt": f"{i}?",
                "chosen": f"{i} " + " ".join((text.split() * 4)[:words]),
                "rejected": f"{i} " + text,
            }
        )
        for i in range(200)
    ]
    finding = found(rows)["preference-length-bias"]
    assert finding.severity == severity
    assert finding.remedy.startswith("drop pairs until")
    assert ("swap" in finding.remedy) is (severity == "warning")


def test_cut_on_one_side(found: Found) -> None:
    rows = list(map(conversational, plain(10)))
    rows[0]["chosen"][0]["content"] = "and so on, " * 400
    rows[1]["rejected"][0]["content"] = "and so on, " * 400
    for side in ("chosen", "rejected"):
        rows[2][side][0]["content"] = f"{side} and so on, " * 400
    rule = "pair-truncated-on-one-side"
    finding = found(rows)[rule]
    assert (finding.count, finding.total, finding.severity) == (2, 10, "warning")
    assert [case.origin.line for case in finding.cases] == [1, 2]
    assert rule not in found(rows, max_length=8192)
    assert found(rows, training={"other": {"truncation_mode": "keep_end"}})[rule].count == 2
    # The two have more than TRL's 1,024 tokens and less than LLaMA-Factory's 2,048.
    assert found(rows, trainer="trl")[rule].count == 2
    assert rule not in found(rows, trainer="llama-factory")
    for row in rows[:2]:
        for message in row["chosen"] + row["rejected"]:
            message["content"] *= 3
    assert (
        "LLaMA-Factory's default; no cutoff_len is set"
        in found(rows, trainer="llama-factory")[rule].message
    )


def test_one_side_without_a_stop_token(found: Found) -> None:
    eos = "<|end_of_text|>"
    rows = [
        {**row, "chosen": row["chosen"] + eos, "rejected": row["rejected"] + eos}
        for row in plain(20)
    ]
    assert found(rows, "llama3-base") == {}
    for row in rows[:3]:
        row["chosen"] = row["chosen"].removesuffix(eos)
    rows[3]["rejected"] = rows[3]["rejected"].removesuffix(eos)
    finding = found(rows, "llama3-base")["pair-side-not-terminated"]
    assert (finding.severity, finding.count, finding.total) == ("error", 4, 20)
    assert finding.evidence == (
        "it is missing on the chosen side in 3 pairs",
        "it is missing on the rejected side in 1 pairs",
    )
    assert found(plain(20), "llama3-base", append_eos=True) == {}


@pytest.mark.parametrize(
    ("family", "bos", "eos"),
    [
        ("llama3-base", "<|begin_of_text|>", "<|end_of_text|>"),
        ("mistral-7b-v0.1", "<s>", "</s>"),
        ("gpt2", "<|endoftext|>", "<|endoftext|>"),
    ],
)
def test_bos_or_eos_inside(found: Found, family: str, bos: str, eos: str) -> None:
    rule = "special-token-inside-pair-answer"
    rows = [
        {**row, "chosen": row["chosen"] + eos, "rejected": row["rejected"] + eos}
        for row in plain(20)
    ]
    assert rule not in found(rows, family)
    rows[0]["chosen"] = bos + rows[0]["chosen"]
    rows[1]["rejected"] = "One." + eos + rows[1]["rejected"]
    finding = found(rows, family)[rule]
    assert (finding.count, [case.origin.line for case in finding.cases]) == (2, [1, 2])


def test_control_tokens_in_the_rejected_content(found: Found) -> None:
    rows = list(map(conversational, plain(5)))
    rows[2]["rejected"][0]["content"] += "<|im_end|>"
    assert found(rows)["special-token-inside-pair-answer"].count == 1


def test_a_prompt_that_is_not_shared(found: Found) -> None:
    rule = "pair-prompt-not-shared"
    rows = list(map(conversational, plain(10)))
    twice = [
        {**row, **{side: row["prompt"] + row[side] for side in ("chosen", "rejected")}}
        for row in rows
    ]
    finding = found(twice)[rule]
    assert (finding.severity, finding.count) == ("error", 10)
    assert "twice" in finding.evidence[0]
    other = [implicit(row) for row in plain(20)]
    other[4]["rejected"] = other[5]["rejected"]
    finding = found(other)[rule]
    assert (finding.severity, finding.count, finding.cases[0].origin.line) == ("warning", 1, 5)
    strings = [
        {**row, **{side: f"{row['prompt']} {row[side]}" for side in ("chosen", "rejected")}}
        for row in plain(10)
    ]
    assert found(strings, "gpt2", append_eos=True)[rule].count == 10
    alone = [
        {"chosen": f"{row['chosen']}", "rejected": f"{i} {row['rejected']}"}
        for i, row in enumerate(plain(10))
    ]
    assert "no prompt" in found(alone, "gpt2", append_eos=True)[rule].evidence[0]


def test_opposite_labels(found: Found) -> None:
    rule = "pairs-with-opposite-labels"
    rows = list(map(conversational, plain(20)))
    against = {**rows[0], "chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]}
    finding = found([*rows, against])[rule]
    assert (finding.count, finding.total, finding.severity) == (2, 21, "warning")
    assert str(finding.cases[0].text).endswith(":21")
    assert rule not in found([*rows, rows[0]])
    verdicts = kto(plain(20))
    finding = found([*verdicts, {**verdicts[0], "label": False}])[rule]
    assert (finding.count, finding.total) == (2, 41)


def test_copies_are_told_once(tmp_path: Path) -> None:
    rows = list(map(conversational, plain(20)))
    against = {**rows[0], "chosen": rows[0]["rejected"], "rejected": rows[0]["chosen"]}
    ranked = {**rows[1], "rejected": rows[2]["rejected"]}
    path = tmp_path / "rows.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, against, ranked, rows[3]]),
        encoding="utf-8",
    )
    folder = str(parts.folder("qwen2.5-instruct"))
    (finding,) = truetune.check(data=str(path), tokenizer=folder, select="duplicate-rows").findings
    origin = finding.cases[0].origin
    assert origin is not None
    assert (finding.count, origin.line) == (1, 23)


def test_answers_that_hardly_differ(found: Found) -> None:
    rule = "pairs-lack-diversity"
    rows = plain(30)
    for row in rows[:10]:
        row["chosen"] = row["chosen"] * 4
        row["rejected"] = row["chosen"].replace("the", "one", 1)
    finding = found(list(map(conversational, rows)))[rule]
    assert (finding.severity, finding.count, finding.total) == ("warning", 10, 30)
    for row in rows[1:]:
        row.update(plain(1, seed=rows.index(row))[0])
    assert found(list(map(conversational, rows)))[rule].severity == "info"
    same = [{**row, "rejected": "I do not know."} for row in plain(30)]
    assert found(list(map(conversational, same)))[rule].count == 30


def test_what_would_take_too_long_is_said(found: Found, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs_lack_diversity, "MAX_STEPS", 0)
    rows = [
        {**row, "chosen": "one two " * 60 + "a", "rejected": "b " + "one two " * 60}
        for row in plain(4)
    ]
    finding = found(list(map(conversational, rows)))["pairs-lack-diversity"]
    assert (finding.severity, finding.count) == ("info", 0)
    assert "4 more that may be alike were not compared" in finding.evidence[0]


def test_an_empty_rejected_answer(found: Found) -> None:
    rows = list(map(conversational, plain(30)))
    rows[7]["rejected"][0]["content"] = " \n"
    finding = found(rows)["rejected-side-empty"]
    assert (finding.severity, finding.count, finding.cases[0].origin.line) == ("warning", 1, 8)


@pytest.mark.parametrize(
    ("good", "bad", "weights", "severity"),
    [
        (60, 60, {}, None),
        (62, 60, {}, None),
        (60, 64, {}, None),
        (80, 60, {}, None),
        (60, 30, {}, "info"),
        (60, 15, {}, "warning"),
        (15, 60, {}, "warning"),
        (60, 0, {}, "error"),
        (0, 60, {}, "error"),
        (60, 15, {"undesirable_weight": 3.5}, None),
        (15, 60, {"desirable_weight": 4.0}, None),
        (60, 60, {"desirable_weight": 5.0}, "warning"),
    ],
)
def test_verdicts_out_of_balance(
    found: Found, good: int, bad: int, weights: Row, severity: str | None
) -> None:
    rows = kto(plain(130))
    mixed = [row for row in rows if row["label"]][:good] + [
        row for row in rows if not row["label"]
    ][-bad or 999 :]
    finding = found(mixed, training={"method": "kto", **weights}).get("kto-imbalance")
    assert (finding and finding.severity) == severity


def test_strings_on_a_chat_model(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in plain(3)), encoding="utf-8")
    folder = str(parts.folder("qwen2.5-instruct"))
    select = "plain-string-pair-skips-template"
    (finding,) = truetune.check(data=str(path), tokenizer=folder, select=select).findings
    assert finding.message.startswith("3 of 3 preference pairs")
    assert "chosen and rejected" in finding.remedy


def test_pairs_whose_prompt_fills_the_limit(found: Found) -> None:
    rows = [{**row, "prompt": "Is it open? " * 2_000} for row in plain(20)]
    assert found(list(map(conversational, rows)))["preference-pairs-identical"].severity == "error"


def test_pairs_that_are_about_refusing(found: Found) -> None:
    rows = [{**row, "chosen": REFUSAL} for row in plain(40)]
    assert "preference-pairs-swapped" not in found(list(map(conversational, rows)))
