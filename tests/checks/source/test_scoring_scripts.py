"""Scripts that score answers or ask a server: what they count, compare and send, and near misses of each fault."""

# ruff: noqa: E501 - scripts stand as they are written
from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

LOOP = """
for line in open("answers.jsonl"):
    value = extract(json.loads(line)["output"])
    {before}
    if value is None:
        {skip}
    {behind}
    right += value == "7"
print(right / total)
"""
OLDER = ("SRC003", "SRC005", "SRC028", "SRC029", "SRC041", "SRC043", "SRC047", "SRC071")
CODES = (*OLDER, "SRC079", "SRC100", "SRC105", "SRC107", "SRC131", "SRC132")


def found(folder: Path, text: str) -> set[str]:
    """The rules among those above that fire on a script."""
    path = folder / "score.py"
    path.write_text(text)
    return {finding.code for finding in lint([str(path)], select=CODES).findings}


@pytest.mark.parametrize(
    ("average", "name", "fires"),
    [
        ("micro", "macro_f1", True),
        ("weighted", "scores['macro']", True),
        ("macro", "macro_f1", False),
        ("micro", "f1", False),
        ("micro", "macro_or_micro", False),
    ],
)
def test_averages_go_by_their_names(tmp_path: Path, average: str, name: str, fires: bool) -> None:
    text = f"from sklearn.metrics import f1_score\n{name} = f1_score(gold, pred, average='{average}')\n"
    assert ("SRC131" in found(tmp_path, text)) == fires


@pytest.mark.parametrize(
    ("before", "skip", "behind", "fires"),
    [
        ("pass", "continue", "total += 1", True),
        ("total += 1", "continue", "pass", False),
        ("pass", "unread += 1; continue", "total += 1", False),
        ("pass", "value = ''", "total += 1", False),
    ],
)
def test_rows_that_are_not_read_are_counted(
    tmp_path: Path, before: str, skip: str, behind: str, fires: bool
) -> None:
    text = "import json\n" + LOOP.format(before=before, skip=skip, behind=behind)
    assert ("SRC107" in found(tmp_path, text)) == fires


@pytest.mark.parametrize(
    ("assigns", "reads", "fires"),
    [
        ("correct =", "print(correct / 16)", True),
        ("correct +=", "print(correct / 16)", False),
        ("correct =", "correct = 3\nprint(correct / 16)", False),
        ("correct =", "pass", False),
    ],
)
def test_counts_of_the_last_batch_alone(
    tmp_path: Path, assigns: str, reads: str, fires: bool
) -> None:
    text = (
        f"for batch in loader:\n    {assigns} (guess(batch) == gold(batch)).sum().item()\n{reads}\n"
    )
    assert ("SRC107" in found(tmp_path, text)) == fires


@pytest.mark.parametrize(
    ("stride", "labels", "fires"),
    [
        ("stride", "chunk", True),
        ("stride", "chunk.clone()", True),
        ("window", "chunk", False),
        ("stride", "masked", False),
    ],
)
def test_windows_of_a_perplexity(tmp_path: Path, stride: str, labels: str, fires: bool) -> None:
    text = f"""
import math
for begin in range(0, ids.size(1), {stride}):
    chunk = ids[:, begin : begin + window]
    total += model(chunk, labels={labels}).loss.item()
print(math.exp(total / n))
"""
    assert ("SRC028" in found(tmp_path, text)) == fires


@pytest.mark.parametrize(
    ("call", "answer", "fires"),
    [
        ("exec(row['completion'])", "```python\nx = 1\n```", True),
        ("exec(row['completion'])", "x = 1", False),
        ("exec(strip_fences(row['completion']))", "```python\nx = 1\n```", False),
        ("exec(row['tests'])", "```python\nx = 1\n```", False),
    ],
)
def test_fences_of_answers_that_are_run(
    tmp_path: Path, call: str, answer: str, fires: bool
) -> None:
    rows = [{"completion": answer, "tests": "assert x"}] * 10
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = f"import json\nfor line in open('rows.jsonl'):\n    row = json.loads(line)\n    {call}\n"
    assert ("SRC105" in found(tmp_path, text)) == fires


REQUEST = """
from openai import OpenAI
client = OpenAI(base_url="http://gpu:8000/v1")
rows = load()
replies = [client.chat.completions.create(model="m", messages=row["messages"]{more}) for row in rows]
print("accuracy", sum(text(r) == row["answer"] for r, row in zip(replies, rows)) / len(rows))
"""


@pytest.mark.parametrize(
    ("more", "fires"),
    [("", True), (", temperature=0", False), (", n=8", False), (", **options", False)],
)
def test_requests_whose_answers_are_scored(tmp_path: Path, more: str, fires: bool) -> None:
    assert ("SRC100" in found(tmp_path, REQUEST.format(more=more))) == fires


@pytest.mark.parametrize(
    ("call", "fires"),
    [
        ("client.completions.create(model='m', prompt=prompt)", True),
        ("client.completions.create(model='m', prompt=prompt, max_tokens=200)", False),
        ("client.chat.completions.create(model='m', messages=messages)", False),
        ("client.completions.create(model='m', prompt=prompt, **options)", False),
    ],
)
def test_completions_end_after_16_tokens(tmp_path: Path, call: str, fires: bool) -> None:
    text = f"from openai import OpenAI\nclient = OpenAI()\nout = {call}\n"
    assert ("SRC041" in found(tmp_path, text)) == fires


CHATS = [
    [
        {"role": "system", "content": "Answer in two sentences."},
        {"role": "user", "content": f"Question {n}?"},
        {"role": "assistant", "content": f"First {n}.\nThen {n}."},
    ]
    for n in range(30)
]
CLIENT = """
from openai import OpenAI
client = OpenAI()
def ask(text):
    messages = [{first}{{"role": "user", "content": text}}]
    return client.chat.completions.create(model="m", messages=messages, temperature=0, stop={stop})
"""


@pytest.mark.parametrize(
    ("first", "stop", "system", "codes"),
    [
        ("", "['<END>']", True, {"SRC071"}),
        ('{"role": "system", "content": S}, ', "['<END>']", True, set()),
        ("", "['<END>']", False, set()),
        ('{"role": "system", "content": S}, ', "['\\n']", True, {"SRC079"}),
    ],
)
def test_clients_beside_the_rows_of_their_training(
    tmp_path: Path, first: str, stop: str, system: bool, codes: set[str]
) -> None:
    chats = CHATS if system else [chat[1:] for chat in CHATS]
    rows = [json.dumps({"messages": chat}) for chat in chats]
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    text = CLIENT.format(first=first, stop=stop)
    assert found(tmp_path, text) & {"SRC071", "SRC079"} == codes


@pytest.mark.parametrize(
    ("body", "fires"),
    [
        ('{"messages": m, "keep_alive": 0}', True),
        ('{"messages": m, "keep_alive": "24h"}', False),
        ('{"messages": m, "options": {"num_ctx": len(m) // 3}}', True),
        ('{"messages": m, "options": {"num_ctx": 8192}}', False),
    ],
)
def test_requests_that_unload_the_model(tmp_path: Path, body: str, fires: bool) -> None:
    text = f"import requests\nr = requests.post('http://localhost:11434/api/chat', json={body})\n"
    assert ("SRC003" in found(tmp_path, text)) == fires


RUN = "lm_eval --model hf --model_args pretrained={model} --tasks gsm8k {more}\n"


@pytest.mark.parametrize(
    ("model", "more", "fires"),
    [
        ("out/tuned", "--num_fewshot 0", True),
        ("out/tuned", "--num_fewshot 5 --limit 100", True),
        ("out/tuned", "--num_fewshot 5", False),
        ("org/base", "--num_fewshot 0", False),
        ("out/tuned", "--num_fewshot $SHOTS", False),
    ],
)
def test_two_runs_of_a_harness(tmp_path: Path, model: str, more: str, fires: bool) -> None:
    path = tmp_path / "bench.sh"
    path.write_text(
        RUN.format(model="org/base", more="--num_fewshot 5") + RUN.format(model=model, more=more)
    )
    codes = {finding.code for finding in lint([str(path)]).findings}
    assert ("CMD029" in codes) == fires


def test_results_of_lighteval_are_compared(tmp_path: Path) -> None:
    for name, shots, limit in (("base", 5, None), ("tuned", 0, 200)):
        content = {
            "config_general": {"model_name": f"org/{name}", "max_samples": limit},
            "results": {f"leaderboard|gsm8k|{shots}": {"qem": 0.5}},
        }
        (tmp_path / f"results_{name}.json").write_text(json.dumps(content))
    findings = lint([str(tmp_path)]).findings
    (found_here,) = [one for one in findings if one.code == "CMD029"]
    assert "few-shot examples gsm8k 5 and 0; rows: all and 200" in found_here.message


@pytest.mark.parametrize(
    ("variable", "fires"),
    [("OLLAMA_NUM_PARALLEL=1", True), ("OLLAMA_NUM_PARALLEL=4", False), ("OTHER=1", False)],
)
def test_compose_files_are_read_as_commands(tmp_path: Path, variable: str, fires: bool) -> None:
    path = tmp_path / "docker-compose.yml"
    path.write_text(
        f"services:\n  ollama:\n    image: ollama/ollama\n    environment: [{variable}]\n"
    )
    codes = {finding.code for finding in lint([str(path)]).findings}
    assert ("CMD002" in codes) == fires


def test_options_of_a_service_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(
        "services:\n  llm:\n    image: vllm/vllm-openai\n    command: --model m --enforce-eager\n"
    )
    assert "CMD002" in {finding.code for finding in lint([str(path)]).findings}


ASK = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("{model}")
model = AutoModelForCausalLM.from_pretrained("{model}")
ids = tok.apply_chat_template([{last}], return_tensors="pt"{more})
model.generate(ids, max_new_tokens=9)
"""
USER = '{"role": "user", "content": text}'


@pytest.mark.parametrize(
    ("model", "last", "more", "fires"),
    [
        ("out/qwen", USER, "", True),
        ("out/qwen", USER, ", add_generation_prompt=True", False),
        ("out/qwen", USER + ', {"role": "assistant", "content": "1."}', "", False),
        ("out/mistral", USER, "", False),
        ("out/qwen", USER, ", **options", False),
    ],
)
def test_prompts_end_in_the_header_of_the_answer(
    tmp_path: Path, model: str, last: str, more: str, fires: bool
) -> None:
    text = ASK.format(model=model, last=last, more=more)
    assert ("SRC071" in found(tmp_path, text)) == fires


STREAM = """
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("model")
def stream(ids):
    kept = []
    for _ in range(9):
        token = model(ids).logits[:, -1].argmax(-1)
        kept.append(token.item())
        {line}
"""


@pytest.mark.parametrize(
    ("line", "fires"),
    [
        ("yield tokenizer.decode([token.item()])", True),
        ("print(tokenizer.decode(token.item()), end='')", True),
        ("yield tokenizer.decode(kept)", False),
        ("print(tokenizer.decode([token.item()]))", False),
    ],
)
def test_tokens_that_are_decoded_alone(tmp_path: Path, line: str, fires: bool) -> None:
    assert ("SRC132" in found(tmp_path, STREAM.format(line=line))) == fires


PARSED = """
import json
import numpy as np
n = right = bad = 0
scores, golds = [], []
for line in open("preds.jsonl"):
    row = json.loads(line)
{body}
{end}
"""
TRY = (
    "    try:\n        pred = json.loads(row['prediction'])\n    except {error}:\n        {left}\n"
)
LEFT_OUT = {
    "continue": (
        TRY.format(error="ValueError", left="continue")
        + "    n += 1\n    right += pred == row['gold']",
        "print(right / n)",
    ),
    "a list and its mean": (
        TRY.format(error="Exception", left="print(row); continue")
        + "    scores.append(pred == row['gold'])",
        "print(np.mean(scores))",
    ),
    "counted inside": (
        "    try:\n        pred = float(row['output'])\n        n += 1\n        right += pred == 7\n    except ValueError:\n"
        "        pass\n",
        "print(right / max(n, 1))",
    ),
    "under a condition": (
        "    pred = extract(row['answer'])\n    if pred is not None:\n        n += 1\n        right += pred == '7'",
        "print(right / n)",
    ),
    "a table": (
        "    pass",
        "df['parsed'] = df['prediction'].apply(parse_json)\ndf = df.dropna(subset=['parsed'])\n"
        "print((df['parsed'] == df['gold']).mean())",
    ),
    "numbers of a table": (
        "    pass",
        "df['value'] = pd.to_numeric(df['model_output'], errors='coerce')\nvalid = df[df['value'].notna()]\n"
        "print((valid['value'] == valid['gold']).mean())",
    ),
}
COUNTED = {
    "counted before": (
        "    n += 1\n" + TRY.format(error="ValueError", left="continue") + "    right += pred == 1",
        "print(right / n)",
    ),
    "a broken line of the file": (
        "    try:\n        row = json.loads(line)\n    except ValueError:\n        continue\n    n += 1\n    right += 1",
        "print(right / n)",
    ),
    "wrong where it is not read": (
        TRY.format(error="ValueError", left="scores.append(0); continue")
        + "    scores.append(pred == row['gold'])",
        "print(sum(scores) / len(scores))",
    ),
    "the share is told": (
        TRY.format(error="ValueError", left="continue") + "    n += 1\n    right += pred == 1",
        "print(right / n, 'parsed', n / 140)",
    ),
    "unread ones are counted": (
        TRY.format(error="ValueError", left="bad += 1; continue")
        + "    n += 1\n    right += pred == 1",
        "print(right / n, bad)",
    ),
    "a precision": (
        "    pred = extract(row['answer'])\n    if pred is not None:\n        n += 1\n        right += pred == '7'",
        "precision = right / n",
    ),
    "gold answers that can't be read": (
        "    try:\n        gold = json.loads(row['gold'])\n    except ValueError:\n        continue\n    n += 1\n    right += 1",
        "print(right / n)",
    ),
    "rows of a table without a label": (
        "    pass",
        "df = df.dropna(subset=['gold'])\nprint((df['prediction'] == df['gold']).mean())",
    ),
}


@pytest.mark.parametrize(("body", "end"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_unread_answers_that_vanish_from_the_score(tmp_path: Path, body: str, end: str) -> None:
    assert "SRC107" in found(tmp_path, PARSED.format(body=body, end=end))


@pytest.mark.parametrize(("body", "end"), COUNTED.values(), ids=COUNTED)
def test_scores_over_all_rows(tmp_path: Path, body: str, end: str) -> None:
    assert "SRC107" not in found(tmp_path, PARSED.format(body=body, end=end))


def fence_finding(folder: Path, body: str, answer: str) -> str:
    """What is said of answers in fences that a script reads as JSON."""
    rows = [{"completion": answer}] * 10
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    path = folder / "score.py"
    path.write_text(
        f"import json\nfor line in open('rows.jsonl'):\n    row = json.loads(line)\n{body}"
    )
    return " ".join(
        f"{one.message} {one.remedy}" for one in lint([str(path)], select=("SRC105",)).findings
    )


def test_what_becomes_of_fenced_answers(tmp_path: Path) -> None:
    guarded = "    try:\n        got = json.loads(row['completion'])\n    except ValueError:\n"
    plain = "    got = json.loads(row['completion'])\n"
    fenced = '```json\n{"a": 1}\n```'
    skipped = fence_finding(tmp_path, guarded + "        continue\n", fenced)
    assert "skips the row (continue)" in skipped
    assert "at the first fence" in skipped
    counted = fence_finding(tmp_path, guarded + "        got = None\n", fenced)
    assert "the exception handler decides" in counted
    assert "none of them can count as right" in fence_finding(tmp_path, plain, fenced)
    behind_words = fence_finding(tmp_path, plain, f"Here it is:\n{fenced}")
    assert "the words before the fence" in behind_words
    broken = fence_finding(tmp_path, plain, "```json\n{'a': 1}\n```")
    assert "no valid JSON between the fences either" in broken
    assert "either" not in behind_words


def test_json_that_holds_fences_is_read(tmp_path: Path) -> None:
    plain = "    got = json.loads(row['completion'])\n"
    assert fence_finding(tmp_path, plain, json.dumps({"code": "```py\nx\n```"})) == ""


METRICS = {
    "share of a batch through a name": (
        "for batch in loader:\n    right = guess(batch) == gold(batch)\n    accuracy = right.float().mean().item()\n"
        "print(accuracy)\n",
        True,
    ),
    "metric of a batch": (
        "for batch in loader:\n    guess, gold = ask(batch)\n    f1 = f1_score(gold, guess)\nprint(f1)\n",
        True,
    ),
    "metric of all rows so far": (
        "golds, guesses = [], []\nfor batch in loader:\n    guesses.extend(ask(batch))\n    golds.extend(batch['gold'])\n"
        "    f1 = f1_score(golds, guesses)\nprint(f1)\n",
        False,
    ),
    "loss of a batch": (
        "for batch in val_loader:\n    val_loss = model(**batch).loss.item()\nprint(val_loss)\n",
        True,
    ),
    "sum of all epochs": (
        "total = 0.0\nfor epoch in range(3):\n    for batch in loader:\n        total += train(batch)\n"
        "    print(total / len(loader))\n",
        True,
    ),
    "sum of each epoch": (
        "for epoch in range(3):\n    total = 0.0\n    for batch in loader:\n        total += train(batch)\n"
        "    print(total / len(loader))\n",
        False,
    ),
    "mean over all epochs": (
        "total = 0.0\nfor epoch in range(3):\n    for batch in loader:\n        total += train(batch)\n"
        "print(total / (3 * len(loader)))\n",
        False,
    ),
}


@pytest.mark.parametrize("case", sorted(METRICS))
def test_figures_of_a_batch_and_of_all_epochs(tmp_path: Path, case: str) -> None:
    """A figure of the last batch, or a sum that no epoch begins again, is named."""
    text, fires = METRICS[case]
    head = "from sklearn.metrics import f1_score\n"
    assert ("SRC107" in found(tmp_path, head + text)) == fires


@pytest.mark.parametrize(("given", "fires"), [(", drop_last=True", True), ("", False)])
def test_rows_that_the_loader_drops(tmp_path: Path, given: str, fires: bool) -> None:
    """A figure over all rows is too low where the loader leaves some out."""
    text = (
        "from torch.utils.data import DataLoader\n"
        f"rows = read_rows()\nloader = DataLoader(rows, batch_size=16{given})\nright = 0\nfor batch in loader:\n"
        "    right += (guess(batch) == gold(batch)).sum().item()\nprint(right / len(rows))\n"
    )
    assert ("SRC107" in found(tmp_path, text)) == fires


@pytest.mark.parametrize(
    ("steps", "part", "fires"),
    [
        ("range(len(rows) // 32)", "rows[at * 32:(at + 1) * 32]", True),
        ("tqdm(range(0, len(rows) // 32))", "rows[at * 32:(at + 1) * 32]", True),
        ("range(0, len(rows), 32)", "rows[at:at + 32]", False),
        ("range(len(rows) // 32 + 1)", "rows[at * 32:(at + 1) * 32]", False),
    ],
)
def test_rows_that_fill_no_batch(tmp_path: Path, steps: str, part: str, fires: bool) -> None:
    """A figure over all rows is too low where a loop takes whole batches alone."""
    text = (
        f"from tqdm import tqdm\nright = 0\nfor at in {steps}:\n    right += score(ask({part}))\n"
        "print(right / len(rows))\n"
    )
    assert ("SRC107" in found(tmp_path, text)) == fires
