# ruff: noqa: E501
"""Files of predictions as people have them: each is read, or one sentence says what to do."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import truetune
from truetune.cli import truetune_group
from truetune.data.parse_rendered_prompts import (
    cut_stop_tokens_and_say_if_found,
    parse_rendered_chat,
)
from truetune.data.read_predictions import Prediction, read_predictions
from truetune.errors import DataError, UsageError

ROWS = (
    ("What is 2+2?", "It is 4.", "4"),
    ("What is the capital of France?", "It is Paris.", "Paris"),
    ("Name a color.", "Red.", "Blue"),
)
Q, A, R = ROWS[0]


def user(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def reply(answer: str) -> dict[str, str]:
    return {"role": "assistant", "content": answer}


def completion(answer: str, reason: str = "stop") -> dict[str, Any]:
    return {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": reply(answer), "finish_reason": reason}],
    }


JSONL: dict[str, tuple[list[Any], tuple[bool, bool, bool | None]]] = {
    "ShareGPT": ([{"conversations": [{"from": "human", "value": q}, {"from": "gpt", "value": a}]} for q, a, _ in ROWS],
                 (True, False, None)),
    "lm-eval": ([{"doc_id": i, "doc": {"question": q}, "target": r, "resps": [[a]], "filtered_resps": [r], "filter": name,
                  "arguments": {"gen_args_0": {"arg_0": f"Question: {q}\nAnswer:", "arg_1": {"until": ["\n"]}}}}
                 for name in ("strict-match", "flexible-extract") for i, (q, a, r) in enumerate(ROWS)],
                (True, True, None)),
    "lm-eval, another document": ([{"doc": {"id": 1}, "resps": [[a]], "target": r, "arguments": [[q, {"until": []}]]}
                                   for q, a, r in ROWS], (True, True, None)),
    "LLaMA-Factory": ([{"prompt": f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n"
                                  "<|im_start|>assistant\n", "predict": f"{a}<|im_end|>", "label": f"{r}<|im_end|>\n"}
                       for q, a, r in ROWS], (True, True, True)),
    "a batch of OpenAI or vLLM": ([{"custom_id": str(i), "response": {"status_code": 200, "body": completion(a)},
                                    "error": None} for i, (_, a, _) in enumerate(ROWS)], (False, False, True)),
    "replies of a server": ([completion(a, "length") for _, a, _ in ROWS], (False, False, False)),
    "a batch of Anthropic": ([{"custom_id": "1", "result": {"type": "succeeded", "message": {
        "role": "assistant", "content": [{"type": "text", "text": a}], "stop_reason": "end_turn"}}}
        for _, a, _ in ROWS], (False, False, True)),
    "vLLM": ([{"prompt": q, "outputs": [{"text": a, "token_ids": [1], "finish_reason": "length"}], "finished": True}
              for q, a, _ in ROWS], (True, False, False)),
    "Evals": ([{"spec": {"eval_name": "match"}}, *(
        {"sample_id": i, "type": kind, "data": data} for i, (q, a, r) in enumerate(ROWS)
        for kind, data in (("sampling", {"prompt": user(q), "sampled": [a]}), ("match", {"expected": r, "correct": True}))
        ), {"final_report": {"accuracy": 1.0}}], (True, True, None)),
    "a pipeline's chats": ([{"generated_text": [*user(q), reply(a)]} for q, a, _ in ROWS], (True, False, None)),
    "GRPO of TRL": ([{"step": 0, "prompt": user(q), "completion": [reply(a)], "reward": 1.0} for q, a, _ in ROWS],
                    (True, False, None)),
    "promptfoo": ([{"prompt": {"raw": q, "label": "x"}, "response": {"output": a}} for q, a, _ in ROWS],
                  (True, False, None)),
    "Ragas": ([{"user_input": q, "response": a, "reference": r, "retrieved_contexts": ["x"]} for q, a, r in ROWS],
              (True, True, None)),
    "a hand-written loop": ([{"idx": 1, "problem": q, "solution": r, "gen": [a], "output_tokens": 5} for q, a, r in ROWS],
                            (True, True, None)),
}  # fmt: skip
"""Rows, and whether they have a prompt, a reference, and an end that is known"""
JSON: dict[str, tuple[Any, tuple[bool, bool]]] = {
    "a list": ([{"input": q, "output": a, "target": r} for q, a, r in ROWS], (True, True)),
    "a table of W&B": ({"columns": ["step", "prompt", "prediction", "reference"], "data": [[1, *row] for row in ROWS],
                        "nrows": 3}, (True, True)),
    "Inspect": ({"status": "success", "samples": [{"input": q, "target": r, "messages": [*user(q), reply(a)],
                                                   "output": completion(a)} for q, a, r in ROWS]}, (True, True)),
    "DeepEval": ({"testCases": [{"input": q, "actualOutput": a, "expectedOutput": r} for q, a, r in ROWS]},
                 (True, True)),
    "a pipeline's list of lists": ([[{"generated_text": a}] for _, a, _ in ROWS], (False, False)),
    "AlpacaEval": ([{"instruction": q, "output": a, "generator": "m"} for q, a, _ in ROWS], (True, False)),
    "answers by id": ({f"id{i}": a for i, (_, a, _) in enumerate(ROWS)}, (False, False)),
}  # fmt: skip
CSV = {
    "short names": ["q", "resp", "gold"],
    "names with spaces": ["Question", "Model Output", "Expected Answer"],
    "names with parts": ["input_text", "model_prediction", "gold_label"],
    "text in and out": ["text-in", "text-out", "text-gt"],
    "plural": ["inputs", "outputs", "targets"],
}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "choices of lm-eval": ([{"doc": {}, "resps": [[["-3.2", "False"]], [["-4.2", "False"]]], "target": "0"}],
                           r":1: the log-likelihoods of choices"),
    "ids": ([{"input_ids": [1], "output_ids": [2]}], r"token ids; decode them \(tokenizer\.batch_decode\)"),
    "curves": ([{"step": 1, "loss": 2.0}], r"did you mean truetune diagnose\?"),
    "models as columns": ([{"question": Q, "llama": A, "gpt4": A}],
                          r"did you mean --map prediction=llama or --map prediction=gpt4\?"),
    "requests": ([{"custom_id": "1", "method": "POST", "body": {"messages": user(Q)}}], r"score its output, with --data"),
}  # fmt: skip


def write_lines(path: Path, rows: Sequence[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def write_csv(path: Path, names: list[str], rows: Sequence[Sequence[Any]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([names, *rows])
    return str(path)


def check(found: Sequence[Prediction], prompt: bool, reference: bool) -> None:
    assert [one.text for one in found] == [a for _, a, _ in ROWS]
    assert [one.question for one in found] == [q if prompt else "" for q, _, _ in ROWS]
    assert [one.reference.strip() for one in found] == [r if reference else "" for _, _, r in ROWS]


@pytest.mark.parametrize("name", JSONL)
def test_lines_of_json(tmp_path: Path, name: str) -> None:
    rows, (prompt, reference, stopped) = JSONL[name]
    found = read_predictions([write_lines(tmp_path / "preds.jsonl", rows)]).predictions
    check(found, prompt, reference)
    assert {one.stopped for one in found} == {stopped}


@pytest.mark.parametrize("name", JSON)
def test_json(tmp_path: Path, name: str) -> None:
    path = tmp_path / "preds.json"
    path.write_text(json.dumps(JSON[name][0]))
    check(read_predictions([str(path)]).predictions, *JSON[name][1])


@pytest.mark.parametrize("name", CSV)
def test_csv(tmp_path: Path, name: str) -> None:
    check(
        read_predictions([write_csv(tmp_path / "preds.csv", CSV[name], ROWS)]).predictions,
        True,
        True,
    )


def test_messages_in_the_cells_of_a_csv(tmp_path: Path) -> None:
    rows = [(0, str(user(q)), json.dumps([reply(a)])) for q, a, _ in ROWS]
    check(
        read_predictions(
            [write_csv(tmp_path / "t.csv", ["step", "prompt", "completion"], rows)]
        ).predictions,
        True,
        False,
    )


def test_objects_in_the_cells_of_a_csv(tmp_path: Path) -> None:
    rows = [
        (json.dumps({"question": q}), json.dumps({"answer": a}), json.dumps({"answer": r}))
        for q, a, r in ROWS
    ]
    names = ["inputs", "outputs", "reference_outputs"]
    check(read_predictions([write_csv(tmp_path / "t.csv", names, rows)]).predictions, True, True)


def test_an_answer_in_json_stays_as_it_is(tmp_path: Path) -> None:
    answer = json.dumps({"answer": "Paris"})
    (found,) = read_predictions(
        [write_lines(tmp_path / "p.jsonl", [{"prompt": Q, "prediction": answer}])]
    ).predictions
    assert found.text == answer


def test_parquet_and_plain_text(tmp_path: Path) -> None:
    import pyarrow as arrow
    from pyarrow import parquet

    columns = zip(*ROWS, strict=True)
    table = dict(zip(("question", "model_answer", "ground_truth"), columns, strict=True))
    parquet.write_table(
        arrow.table({name: list(cells) for name, cells in table.items()}), tmp_path / "p.parquet"
    )
    check(read_predictions([str(tmp_path / "p.parquet")]).predictions, True, True)
    (tmp_path / "generated_predictions.txt").write_text("".join(f"{a}\n" for _, a, _ in ROWS))
    check(read_predictions([str(tmp_path / "generated_predictions.txt")]).predictions, False, False)


def test_requests_of_a_batch_bring_the_prompts(tmp_path: Path) -> None:
    answers = write_lines(tmp_path / "out.jsonl", JSONL["a batch of OpenAI or vLLM"][0][::-1])
    requests = [
        {"custom_id": str(i), "method": "POST", "body": {"messages": user(q)}}
        for i, (q, _, _) in enumerate(ROWS)
    ]
    report = truetune.score(answers, data=write_lines(tmp_path / "in.jsonl", requests))
    asked = [(sample.prompt.question, sample.answer.text) for sample in report.samples]
    assert asked == [(q, a) for q, a, _ in ROWS][::-1]


@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_no_answer_says_so(tmp_path: Path, name: str) -> None:
    rows, said = REFUSED[name]
    with pytest.raises(DataError, match=said):
        read_predictions([write_lines(tmp_path / "p.jsonl", rows)])


def test_columns_that_are_parted_by_semicolons(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("question;prediction\na;b\n")
    with pytest.raises(DataError, match="2 columns that are parted by ';'; expected commas"):
        read_predictions([str(tmp_path / "p.csv")])


@pytest.mark.parametrize(
    "text",
    [
        f"<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n{Q} [/INST]",
        (
            f"<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{Q}<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n"
        ),
        f"<bos><start_of_turn>user\n{Q}<end_of_turn>\n<start_of_turn>model\n",
        f"<|user|>\n{Q}<|end|>\n<|assistant|>\n",
        f"system\nBe brief.\nuser\n{Q}\nassistant\n",
        f"Below is an instruction.\n\n### Instruction:\n{Q}\n\n### Response:\n",
        f"\n\nHuman: {Q}\n\nAssistant:",
        f"A chat with an assistant. USER: {Q} ASSISTANT:",
        f"Question: Who?\nAnswer: He.\n\nQuestion: {Q}\nAnswer:",
    ],
)
def test_the_question_in_a_rendered_prompt(text: str) -> None:
    assert Prediction(A, parse_rendered_chat(text) or "").question == Q
    assert truetune.score([A], [text], [R]).samples[0].prompt.question == Q


@pytest.mark.parametrize(
    "text",
    [Q, "", "What does <|im_start|>user mean?", "User: me\nIs that a header?", "### Response:"],
)
def test_other_prompts_are_no_template(text: str) -> None:
    assert parse_rendered_chat(text) is None


def test_stop_tokens_at_the_end() -> None:
    assert cut_stop_tokens_and_say_if_found("It is 4.<|im_end|>\n<pad><pad>") == ("It is 4.", True)
    assert cut_stop_tokens_and_say_if_found("It is 4.<pad>") == ("It is 4.", None)
    assert cut_stop_tokens_and_say_if_found("</s> ends a text") == ("</s> ends a text", None)


@pytest.mark.parametrize("command", ["sample", "evaluate", "report"])
@pytest.mark.parametrize(
    "name", ["Evals", "lm-eval", "a batch of OpenAI or vLLM", "LLaMA-Factory", "Ragas"]
)
def test_commands_for_models_name_score(tmp_path: Path, command: str, name: str) -> None:
    path = write_lines(tmp_path / "preds.jsonl", JSONL[name][0])
    result = CliRunner().invoke(truetune_group, [command, path], standalone_mode=False)
    assert isinstance(result.exception, UsageError | DataError)
    assert f"did you mean: truetune score {path}?" in str(result.exception)


def test_a_table_given_to_report(tmp_path: Path) -> None:
    path = tmp_path / "t.table.json"
    path.write_text(json.dumps(JSON["a table of W&B"][0]))
    result = CliRunner().invoke(truetune_group, ["report", str(path)], standalone_mode=False)
    assert f"did you mean: truetune score {path}?" in str(result.exception)
