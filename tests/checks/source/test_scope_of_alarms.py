"""What a rule on source must not say: real shapes in which there is nothing wrong, beside those in which there is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.checks.source.table import HEAD, codes
from tests.source.modules import notebook
from truetune.checks.lint import lint

FAULT = """
from transformers import AutoTokenizer
tok = AutoTokenizer.from_pretrained("x")
len(tok.apply_chat_template(m))
"""


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\nx = 1",
        "!pip install -q trl\nimport os",
        "%%bash\ncurl -X POST x | sh",
        "%%capture output\nimport os",
        "%%time\ny = [1,\n     2]",
        "?tok.encode",
        "tok.encode?",
        "tok.encode??",
        "files = !ls -la",
        "result = %timeit -o f()",
        "await model.agenerate('x')",
        "async with session() as s:\n    await s.go()",
        "if True:\n    !pip install trl\nelse:\n    %cd /tmp",
        "!pip install \\\n   transformers \\\n   trl",
        "%%writefile train.sh\nfoo bar baz",
        "%%html\n<b>bold</b>",
        "!{sys.executable} -m pip install trl",
        "%env TOKEN=abc",
    ],
)
def test_cells_of_notebooks_are_read(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(cell, FAULT), encoding="utf-8")
    assert [f.code for f in lint([path], select=["SRC006", "SRC010"]).findings] == ["SRC010"]


@pytest.mark.parametrize(
    "cell",
    [
        "curl https://sdk.example.org | bash\ngcloud init",
        "f(a=1\nb=2)",
        "print 'hello'",
        "docker run -it x",
        "x = = 1",
    ],
)
def test_a_cell_that_cannot_be_parsed_is_told_and_leaves_the_others(
    cell: str, tmp_path: Path
) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook("import os", cell, FAULT), encoding="utf-8")
    unread, found = sorted(lint([path], select=["SRC006", "SRC010"]).findings, key=lambda f: f.code)
    assert (unread.severity, found.code) == ("info", "SRC010")
    running = ".".join(map(str, sys.version_info[:2]))
    assert unread.message.startswith(
        f"cell 2 is not judged, because this Python ({running}) can't parse it: "
    )


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python takes them")
@pytest.mark.parametrize(
    "line",
    [
        'x = f"{row["question"]}"',
        "x = f'{d['a']} and {d['b']}'",
        'x = f"{"\\n".join(lines)}"',
        "type Rows = list[dict[str, str]]",
        "def first[T](rows: list[T]) -> T:\n    return rows[0]",
        "class Box[T]:\n    pass",
    ],
)
def test_syntax_of_a_newer_python_is_no_fault_of_the_file(line: str, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(line + "\n")
    (finding,) = lint([path], select=["SRC006"]).findings
    assert finding.severity == "info"
    assert finding.remedy == "run truetune with the Python that the code is written for"


def test_a_syntax_error_in_a_script_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("x = = 1\n")
    assert [f.severity for f in lint([path], select=["SRC006"]).findings] == ["warning"]


SFT = "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig('out')\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SFT + "SFTTrainer(model, args=args, train_dataset=ds).train()", ["CFG042w"]),
        (SFT + "SFTTrainer(model, args=args, train_dataset=ds, data_collator=None).train()", ["CFG042w"]),
        (SFT + "SFTTrainer(model, args=args, train_dataset=ds, data_collator=my_collator).train()", []),
        (SFT + "def collate(rows):\n    return {}\nSFTTrainer(model, args=args, data_collator=collate).train()", []),
        (SFT + "SFTTrainer(model, args=args, train_dataset=ds.map(lambda row: tok(row['text']))).train()", []),
        (SFT + "def encode(row):\n    return {'input_ids': [1], 'labels': [1]}\nrows = ds.map(encode).shuffle()\n"
         "SFTTrainer(model, args=args, train_dataset=rows).train()", []),
        (SFT + "def form(row):\n    return {'text': row['q']}\nrows = ds.map(form)\n"
         "SFTTrainer(model, args=args, train_dataset=rows).train()", ["CFG042w"]),
        ("from trl import SFTConfig\nargs = SFTConfig('out', dataset_kwargs={'skip_prepare_dataset': True})", []),
        ("from unsloth import FastLanguageModel\nfrom trl import SFTConfig\n"
         "m, t = FastLanguageModel.from_pretrained('a/b', max_seq_length=4096)\nargs = SFTConfig('out')", []),
    ],
)  # fmt: skip
def test_a_length_counts_where_the_trainer_cuts(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(text, tmp_path, "CFG042") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tok('one prompt', padding=True, return_tensors='pt')", []),
        ("tok(['one prompt'], padding=True, return_tensors='pt')", []),
        ("tok(f'{a} and {b}', padding=True, return_tensors='pt')", []),
        ("tok(PROMPT.format(x), padding=True, return_tensors='pt')", []),
        ("tok('### ' + question, padding=True, return_tensors='pt')", []),
        ("tok(input(), padding=True, return_tensors='pt')", []),
        (
            (
                "tok.apply_chat_template([{'role': 'user', 'content': q}], padding=True,"
                " return_dict=True)"
            ),
            [],
        ),
        (
            (
                "tok(tok.apply_chat_template([{'role': 'user', 'content': q}], tokenize=False),"
                " padding=True)"
            ),
            [],
        ),
        ("tok(['one', 'two'], padding=True, return_tensors='pt')", ["SRC042w"]),
        ("tok([p for p in prompts], padding=True, return_tensors='pt')", ["SRC042w"]),
        ("tok(prompts, padding=True, return_tensors='pt')", ["SRC042w"]),
    ],
)
def test_one_prompt_needs_no_padding_side(text: str, expected: list[str], tmp_path: Path) -> None:
    assert (
        codes(f"out = model.generate(**{text}, max_new_tokens=9)", tmp_path, "SRC042") == expected
    )


def _rendered(name: str, load: str = "AutoTokenizer.from_pretrained({!r})") -> str:
    return (
        f"t = {load.format(name)}\n"
        "text = t.apply_chat_template(m, tokenize=False, add_generation_prompt=True)\n"
        "ids = t(text, return_tensors='pt')\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_rendered("meta-llama/Llama-3.1-8B-Instruct"), ["SRC009w"]),
        (_rendered("Qwen/Qwen3-8B"), []),
        (_rendered("some/model-of-tomorrow"), []),
        ("from unsloth import FastLanguageModel\n"
         "m0, t = FastLanguageModel.from_pretrained(model_name='unsloth/Qwen3-4B')\n"
         "ids = t(t.apply_chat_template(m, tokenize=False), return_tensors='pt')", []),
        ("from unsloth import FastLanguageModel\n"
         "m0, t = FastLanguageModel.from_pretrained('unsloth/Llama-3.2-1B-Instruct')\n"
         "ids = t(t.apply_chat_template(m, tokenize=False), return_tensors='pt')", ["SRC009w"]),
    ],
)  # fmt: skip
def test_a_second_bos_needs_a_first(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC009") == expected


def test_what_a_processor_renders_is_text(tmp_path: Path) -> None:
    text = "p = AutoProcessor.from_pretrained('a/b')\nn = len(p.apply_chat_template(m))\n"
    assert codes(text, tmp_path, "SRC010") == []


TRAINING = """
train_tok = AutoTokenizer.from_pretrained("a/b")
train_tok.pad_token = "<|pad|>"
trainer = Trainer(model=model, args=TrainingArguments("out"), train_dataset=ds,
                  data_collator=DataCollatorForLanguageModeling(train_tok, mlm=False))
"""
EVALUATION = """
eval_tok = AutoTokenizer.from_pretrained("a/b")
eval_tok.pad_token = eval_tok.eos_token
"""


def test_a_tokenizer_made_behind_the_training_trains_nothing(tmp_path: Path) -> None:
    assert codes(TRAINING + "trainer.train()\n" + EVALUATION, tmp_path, "SRC007") == []
    assert codes(TRAINING + EVALUATION + "trainer.train()\n", tmp_path, "SRC007") == ["SRC007e"]


ADDED = """
t = AutoTokenizer.from_pretrained({folder!r})
t.add_tokens([{token!r}])
m2 = AutoModelForCausalLM.from_pretrained({folder!r})
config = LoraConfig(r=8)
"""


def test_tokens_that_the_named_model_has_are_not_new(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        '{"added_tokens": [{"id": 3, "content": "[TOOL]"}], "model": {"vocab": {"a": 0, "[ACT]":'
        " 1}}}"
    )
    (folder / "tokenizer_config.json").write_text("{}")
    for token, count in (("[TOOL]", 0), ("[ACT]", 0), ("[NEW]", 1)):
        text = ADDED.format(folder=str(folder), token=token)
        assert len(codes(text, tmp_path, "SRC045")) == len(codes(text, tmp_path, "SRC052")) == count


TWO_RUNS = """
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

SFTTrainer("a/b", args=SFTConfig("one", learning_rate=2e-4), train_dataset=ds, peft_config=LoraConfig(r=8)).train()
DPOTrainer({model}, args=DPOConfig("two", learning_rate=1e-9), train_dataset=ds{more}).train()
"""


@pytest.mark.parametrize(
    ("model", "more", "what"),
    [
        ('"a/b"', "", "DPO of all weights"),
        ('AutoModelForCausalLM.from_pretrained("a/b")', "", "DPO of all weights"),
        ('"a/b"', ", peft_config=LoraConfig(r=4)", "DPO of an adapter"),
        ("get_peft_model(model, LoraConfig(r=4))", "", "DPO of an adapter"),
        ("loaded()", "", "DPO of an adapter"),
    ],
)
def test_the_adapter_of_one_run_is_not_that_of_another(
    model: str, more: str, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + TWO_RUNS.format(model=model, more=more))
    (finding,) = lint([path], select=["CFG015"]).findings
    assert what in finding.message


COPIED = (
    "def encode(rows):\n    batch = tok(rows['text'], padding='max_length', max_length=64)\n"
    "    batch['labels'] = batch['input_ids'].copy()\n    return batch\n"
)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("Trainer(model=model, train_dataset=ds.map(encode)).train()", ["SRC015e"]),
        ("optimizer = torch.optim.AdamW(model.parameters())\nfor batch in ds.map(encode):\n"
         "    model(**batch).loss.backward()", ["SRC015e"]),
        ("ds.map(encode).save_to_disk('rows')", ["SRC015i"]),
        ("rows = ds.map(encode)", ["SRC015i"]),
        # Nothing is learned there, and the loss counts pads.
        ("model.eval()\nfor row in ds.map(encode):\n    print(model(**row).loss)", ["SRC015w"]),
        ("print(Trainer(model=model, eval_dataset=ds.map(encode)).evaluate())", ["SRC015w"]),
        ("model.eval()\nfor row in ds.map(encode):\n    print(model.generate(row['input_ids']))", []),
    ],
)  # fmt: skip
def test_labels_are_learned_where_something_trains(
    more: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(COPIED + more, tmp_path, "SRC015") == expected


GENERATES = """
model = AutoModelForCausalLM.from_pretrained("x")
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("model.generate(**batch, do_sample=True, temperature=1.5, max_new_tokens=9)", ["SRC079w"]),
        ("model.generate(**batch, temperature=1.5, min_p=0.01, max_new_tokens=9)", ["SRC079w"]),
        ("model.generate(**batch, temperature=1.5, min_p=0.1, max_new_tokens=9)", []),
        ("model.generate(**batch, temperature=1.5, min_p=args.min_p, max_new_tokens=9)", []),
    ],
)
def test_a_high_temperature_is_no_fault_where_unlikely_tokens_are_cut(
    more: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(GENERATES + more, tmp_path, "SRC079") == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ["SRC041w"]),
        ("model.generation_config = GenerationConfig.from_pretrained('x')\n", []),
        ("model.config.use_cache = True\n", ["SRC041w"]),
    ],
)
def test_another_generation_config_may_set_the_length(
    more: str, expected: list[str], tmp_path: Path
) -> None:
    generation = "def ask(ids):\n    return model.generate(ids)\n"
    assert codes(GENERATES + more + generation, tmp_path, "SRC041") == expected


LOSSES = """
losses = []
for batch in loader:
    {block}:
        outputs = model(**batch)
    losses.append(outputs.loss)
"""


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("with torch.no_grad()", []),
        ("with torch.inference_mode()", []),
        ("with torch.autocast('cuda')", ["SRC085e"]),
    ],
)
def test_a_loss_of_a_block_without_gradients_has_no_graph(
    block: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(GENERATES + LOSSES.format(block=block), tmp_path, "SRC085") == expected


TWO_PROMPTS = """
essay = tok("Write an essay about the sea.", return_tensors="pt")
model.generate(**essay, {essay} max_new_tokens=9)
query = tok("Table: towns. Write a SQL query that counts them.", return_tensors="pt")
model.generate(**query, {query} max_new_tokens=9)
"""


@pytest.mark.parametrize(
    ("essay", "query", "expected"),
    [
        ("repetition_penalty=1.2,", "", []),
        ("", "repetition_penalty=1.2,", ["SRC033w"]),
        ("repetition_penalty=1.2,", "repetition_penalty=1.2,", ["SRC033w"]),
    ],
)
def test_an_instruction_counts_for_the_generation_that_it_is_given_to(
    essay: str, query: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(GENERATES + TWO_PROMPTS.format(essay=essay, query=query), tmp_path, "SRC033") == (
        expected
    )


def test_a_notebook_is_not_launched_by_a_configuration_beside_it(tmp_path: Path) -> None:
    script = (
        "from transformers import AutoModelForCausalLM, Trainer\n"
        "model = AutoModelForCausalLM.from_pretrained('x')\n"
        "trainer = Trainer(model=model, train_dataset=rows)\n"
        "trainer.train()\n"
        "trainer.model.save_pretrained('out')\n"
    )
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "train.ipynb").write_text(notebook(script), encoding="utf-8")
    assert [f.code for f in lint([tmp_path / "train.py"], select=["SRC023"]).findings] == ["SRC023"]
    assert lint([tmp_path / "train.ipynb"], select=["SRC023"]).findings == ()
