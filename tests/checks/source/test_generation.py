"""Rules on generation (SRC040 to SRC044): what they find, and what they leave alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import HEAD, codes
from tests.source.modules import notebook
from truetune.checks.lint import lint

RULES = ("SRC040", "SRC041", "SRC042", "SRC044")

CHAT = 'enc = tok.apply_chat_template(rows, return_tensors="pt", return_dict=True)\n'
BATCH = 'enc = tok(texts, return_tensors="pt", padding=True)\n'
LEFT = 'tok.padding_side = "left"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('model.generate(**tok("x", return_tensors="pt"))', ["SRC041w"]),
        ('model.generate(**tok("x", return_tensors="pt").to("cuda"))', ["SRC041w"]),
        (CHAT + "model.generate(**enc)", ["SRC041w"]),
        (CHAT + 'model.generate(**enc.to("cuda"), do_sample=True)', ["SRC041w"]),
        (CHAT + "model.generate(**enc, max_new_tokens=9)", []),
        (CHAT + 'model.generate(enc["input_ids"], max_new_tokens=9)', []),
        ('model.generate(tok("x", return_tensors="pt").input_ids.cuda(), max_new_tokens=9)', []),
        (CHAT + 'model.generate(**enc, **{"max_new_tokens": 9})', []),
        (CHAT + "model.generate(**enc, **options)", []),
        (CHAT + "model.generate(**enc, generation_config=GenerationConfig(max_new_tokens=9))", []),
        (CHAT + "model.generation_config.max_new_tokens = 9\nmodel.generate(**enc)", []),
        (LEFT + BATCH + "model.generate(enc.input_ids, max_new_tokens=9)", ["SRC040w"]),
        (
            LEFT + BATCH + 'model.generate(input_ids=enc["input_ids"].cuda(), max_new_tokens=9)',
            ["SRC040w"],
        ),
        (
            LEFT
            + BATCH
            + "model.generate(enc.input_ids, attention_mask=enc.attention_mask, max_new_tokens=9)",
            [],
        ),
        (BATCH + "model.generate(**enc, max_new_tokens=9)", ["SRC042w"]),
        (
            'tok.padding_side = "right"\n' + BATCH + "model.generate(**enc, max_new_tokens=9)",
            ["SRC042e"],
        ),
        (LEFT + BATCH + "model.generate(**enc, max_new_tokens=9)", []),
        (
            BATCH.replace(")", ', padding_side="left")')
            + "model.generate(**enc, max_new_tokens=9)",
            [],
        ),
        (
            CHAT.replace("return_dict", "padding=True, return_dict")
            + "model.generate(**enc, max_new_tokens=9)",
            ["SRC042w"],
        ),
        ("model.generate(batch, max_new_tokens=9, use_cache=False)", []),
        (
            "for batch in rows:\n    model.generate(batch, max_new_tokens=9, use_cache=False)",
            ["SRC044w"],
        ),
        (
            (
                "for batch in rows:\n    model.generate(batch, max_new_tokens=9, use_cache=False,"
                " streamer=shown)"
            ),
            [],
        ),
        (
            "model.generation_config.use_cache = False\nmodel.generate(batch, max_new_tokens=9)",
            ["SRC044w"],
        ),
        (
            (
                "model.generation_config.use_cache = False\nmodel.generate(batch, max_new_tokens=9,"
                " use_cache=True)"
            ),
            [],
        ),
        ("model.config.use_cache = False\nmodel.generate(batch, max_new_tokens=9)", []),
        ("client.generate('a prompt')", []),
        (
            (
                "class Bot:\n"
                "    def __init__(self):\n"
                "        self.tok = AutoTokenizer.from_pretrained('a')\n"
                "        self.model = AutoModelForCausalLM.from_pretrained('a')\n"
                "    def ask(self, text):\n"
                "        enc = self.tok(text, return_tensors='pt')\n"
                "        return self.model.generate(enc.input_ids)\n"
            ),
            ["SRC041w"],
        ),
    ],
)
def test_generation(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, *RULES) == expected


def test_models_with_an_encoder_are_padded_on_the_right(tmp_path: Path) -> None:
    path = tmp_path / "sum.py"
    path.write_text(
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n"
        'tok = AutoTokenizer.from_pretrained("google-t5/t5-small")\n'
        'model = AutoModelForSeq2SeqLM.from_pretrained("google-t5/t5-small")\n'
        'model.generate(**tok(texts, return_tensors="pt", padding=True), max_new_tokens=9)\n'
    )
    assert lint([path], select=["SRC042"]).findings == ()


ONE_ROW = (
    'rows = "Hi"',
    "rows = ['Hi']",
    "name = input()\nrows = f'Hi {name}'",
    "rows = 'Hi {}'.format(name)",
    "rows = 'Hi ' + name",
    "rows = '### Question: %s' % name",
    "rows = tok.apply_chat_template([{'role': 'user', 'content': q}], tokenize=False)",
    "rows = [tok.apply_chat_template([{'role': 'user', 'content': q}], tokenize=False)]",
    "def prompt(q):\n    return f'Hi {q}'\nrows = prompt(q)",
    "rows = open('prompt.txt').read()",
)
MANY_ROWS = (
    "rows = ['Hi', 'How do you do?']",
    "rows = [f'Hi {name}' for name in names]",
    "rows = [*texts]",
    "rows = texts",
    "rows = data['text']",
    "rows = tok.apply_chat_template(chats, tokenize=False)",
)
PADDED = (
    "\nenc = tok(rows, return_tensors='pt', padding=True)\nmodel.generate({}, max_new_tokens=9)"
)


@pytest.mark.parametrize("given", ["**enc", "enc.input_ids"])
@pytest.mark.parametrize(
    ("rows", "many"), [*((rows, False) for rows in ONE_ROW), *((rows, True) for rows in MANY_ROWS)]
)
def test_one_row_has_no_pads(rows: str, many: bool, given: str, tmp_path: Path) -> None:
    expected = ["SRC040w"] * (given != "**enc") + ["SRC042w"] if many else []
    assert codes(rows + PADDED.format(given), tmp_path, *RULES) == expected


def test_one_row_at_a_fixed_length_has_pads(tmp_path: Path) -> None:
    text = "enc = tok('Hi', return_tensors='pt', padding='max_length', max_length=64)\n"
    assert codes(text + "model.generate(**enc, max_new_tokens=9)", tmp_path, *RULES) == ["SRC042w"]


@pytest.mark.parametrize(
    ("head", "many"),
    [
        ("def ask(rows: str):", False),
        ("def ask(rows):", True),
        ("def ask(rows: list[str]):", True),
        ("for rows in ['Hi', 'Ho']:", False),
        ("for rows in batches:", True),
        ("def ask(texts: list[str]):\n  for rows in texts:", False),
        ("def ask(batches: list[list[str]]):\n  for rows in batches:", True),
    ],
)
def test_rows_of_loops_and_parameters(head: str, many: bool, tmp_path: Path) -> None:
    body = PADDED.format("**enc").replace("\n", "\n" + " " * (2 + 2 * head.count("\n")))
    assert codes(head + body, tmp_path, *RULES) == ["SRC042w"] * many


def test_one_conversation_has_no_pads(tmp_path: Path) -> None:
    one = "chat = [{'role': 'user', 'content': q}]\n"
    text = (
        "enc = tok.apply_chat_template({}, return_tensors='pt', return_dict=True, padding=True)\n"
    )
    ask = "model.generate(**enc, max_new_tokens=9)"
    assert codes(one + text.format("chat") + ask, tmp_path, *RULES) == []
    assert codes(one + text.format("[chat, chat]") + ask, tmp_path, *RULES) == ["SRC042w"]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("out = model.generate(**tok('Hi', return_tensors='pt'))\nprint(tok.decode(out[0]))", 0),
        ("def ask(q):\n    return model.generate(**tok(q, return_tensors='pt'))", 1),
        ("for q in questions:\n    model.generate(**tok(q, return_tensors='pt'))", 1),
        ("outs = [model.generate(**tok(q, return_tensors='pt')) for q in questions]", 1),
    ],
)
def test_what_a_cell_generates_by_itself_is_read_at_once(
    cell: str, expected: int, tmp_path: Path
) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(notebook(HEAD, cell))
    assert len(lint([path], select=["SRC041"]).findings) == expected


BATCHED = (
    "enc = tok(texts, return_tensors='pt', padding=True)\nout = model.generate(**enc,"
    " max_new_tokens=9)\n"
)


@pytest.mark.parametrize(
    ("use", "count"),
    [
        ("print(tok.decode(out[0]))", 0),
        ("print(tok.decode(out[0][enc.input_ids.shape[1]:]))", 0),
        ("print(tok.decode(out[0, 5:]), out.shape)", 0),
        ("tok.batch_decode(out, skip_special_tokens=True)", 0),
        ("print(tok.batch_decode(out))", 1),
        ("texts = tok.batch_decode(out)", 1),
        ("print(tok.decode(out[0]), tok.decode(out[1]))", 1),
        ("for one in out:\n    print(tok.decode(one))", 1),
        ("save(out)", 1),
        ("", 1),
    ],
)
def test_one_answer_is_of_one_prompt(use: str, count: int, tmp_path: Path) -> None:
    assert len(codes(BATCHED + use, tmp_path, "SRC042")) == count


def test_unsloth_pads_on_the_left(tmp_path: Path) -> None:
    loaded = (
        "from unsloth import FastLanguageModel\nmodel, tok ="
        " FastLanguageModel.from_pretrained('org/some')\n"
    )
    assert codes(loaded + BATCHED, tmp_path, "SRC042") == []
    ready = "from unsloth import FastLanguageModel\nFastLanguageModel.for_inference(model)\n"
    assert codes(ready + BATCHED, tmp_path, "SRC042") == []
    assert codes("import unsloth\n" + BATCHED, tmp_path, "SRC042") == ["SRC042w"]


ASK = "model.generate(**tok(q, return_tensors='pt'){})"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"def ask(q, kwargs):\n    return {ASK.format(', **kwargs')} if kwargs else {ASK.format('')}\n", 0),
        (f"def ask(q, **options):\n    if options:\n        return {ASK.format(', **options')}\n"
         f"    return {ASK.format('')}\n", 0),
        (f"def ask(q):\n    return {ASK.format('')}\n", 1),
        (f"class TestPoly:\n    def test_poly(self, q):\n        before = {ASK.format('')}\n", 0),
        (f"def test_it(q):\n    {ASK.format('')}\n", 0),
        (f"def chat(q, gen_kwargs):\n    return {ASK.format(', **gen_kwargs')}\ndef serve(r):\n    options = {{}}\n"
         "    if r.long:\n        options['max_length'] = r.long\n    return chat(r.q, gen_kwargs=options)\n", 0),
        (f"def chat(q, gen_kwargs):\n    return {ASK.format(', **gen_kwargs')}\ndef serve(r):\n"
         "    options = {'do_sample': False}\n    return chat(r.q, gen_kwargs=options)\n", 1),
    ],
)  # fmt: skip
def test_the_caller_may_say_how_long_answers_are(text: str, count: int, tmp_path: Path) -> None:
    assert len(codes(text, tmp_path, "SRC041")) == count


EQUAL = [
    "texts = [prompt] * 40",
    "texts = 8 * ['Hi']",
    "texts = [prompt for _ in range(40)]",
    "texts = [f'{prompt}: ' for i in range(40)]",
    (
        "chats = [[{'role': 'user', 'content': prompt}] for _ in range(SIZE)]\n"
        "texts = [tok.apply_chat_template(chat, tokenize=False) for chat in chats]"
    ),
    (
        "chats = [chat] * 40\ntexts = [tok.apply_chat_template(c, tokenize=False).strip() for c in"
        " chats]"
    ),
    "texts = user_input()\nshown = texts.strip()",
    "texts = row['text']\nif texts.startswith('Q'):\n    pass",
]
"""Rows that are equally long"""


@pytest.mark.parametrize("rows", EQUAL)
def test_rows_of_one_text_have_no_pads(rows: str, tmp_path: Path) -> None:
    text = f"prompt = ask()\n{rows}\n" + BATCH
    assert (
        codes(
            text + "model.generate(enc.input_ids, max_new_tokens=9)", tmp_path, "SRC040", "SRC042"
        )
        == []
    )
    assert (
        codes(text + "model.generate(**enc, max_new_tokens=9)", tmp_path, "SRC040", "SRC042") == []
    )


@pytest.mark.parametrize(
    "rows",
    [
        "texts = [prompt, other] * 40",
        "texts = prompts * 40",
        "texts = [*prompts] * 40",
        "texts = [f'{i}: {prompt}' for i in range(40)]",
        "texts = [make() for _ in range(40)]",
        "texts = [p for p in prompts]",
        "texts = [''] * 40\nfor i in range(40):\n    texts[i] = prompts[i]",
        "texts = ['Hi'] * 4\ntexts.append('How do you do?')",
        "texts = [p + q for p in prompts for q in range(4)]",
        "texts = prompts()\nshown = [text.strip() for text in texts]",
        "def clean(texts):\n    return texts.strip()\ntexts = prompts()",
    ],
)
def test_rows_that_may_differ_have_pads(rows: str, tmp_path: Path) -> None:
    text = f"prompt = ask()\n{rows}\n" + BATCH + "model.generate(**enc, max_new_tokens=9)"
    assert codes(text, tmp_path, "SRC042") == ["SRC042w"]


SEQ2SEQ = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, Seq2SeqTrainer, Seq2SeqTrainingArguments
tok = AutoTokenizer.from_pretrained("{name}")
model = AutoModelForSeq2SeqLM.from_pretrained("{name}")
def encode(b):
    return {{**tok(b["text"]), "labels": tok(text_target=b["summary"], max_length={cut})["input_ids"]}}
{args}
trainer = Seq2SeqTrainer(model=model, args=args, train_dataset=rows.map(encode), eval_dataset=rows)
{after}
"""
ON = "args = Seq2SeqTrainingArguments('out', predict_with_generate=True)"
LATER = "args = Seq2SeqTrainingArguments('out')\nargs.predict_with_generate = True"
SPREAD = "known = dict(output_dir='o', predict_with_generate=True)\nargs = Seq2SeqTrainingArguments(**known)"


@pytest.mark.parametrize(
    ("name", "args", "cut", "after", "expected"),
    [
        ("google/flan-t5-base", ON, 128, "", ["SRC041w"]),
        ("google/mt5-small", LATER, 90, "trainer.predict(rows)", ["SRC041w"]),
        ("facebook/bart-base", SPREAD, 128, "trainer.evaluate()", ["SRC041w"]),
        ("me/summaries", ON, 128, "", ["SRC041i"]),
        # A length of the model, of the arguments or of the call; short labels; no generation
        ("facebook/bart-large-cnn", ON, 128, "", []),
        ("openai/whisper-small", ON, 128, "", []),
        ("google/flan-t5-base", ON[:-1] + ", generation_max_length=128)", 128, "", []),
        ("google/flan-t5-base", ON, 128, "trainer.evaluate(max_length=128)", []),
        ("google/flan-t5-base", f"model.generation_config.max_length = 90\n{ON}", 128, "", []),
        ("google/flan-t5-base", ON, 8, "", []),
        ("google/flan-t5-base", "args = Seq2SeqTrainingArguments('out')", 128, "", []),
    ],
)
def test_evaluations_of_seq2seq_trainers_need_a_length(
    name: str, args: str, cut: int, after: str, expected: list[str], tmp_path: Path
) -> None:
    text = SEQ2SEQ.format(name=name, args=args, cut=cut, after=after)
    assert codes(text, tmp_path, "SRC041") == expected


PARSED = """from transformers import AutoModelForSeq2SeqLM, HfArgumentParser, Seq2SeqTrainer, Seq2SeqTrainingArguments
(args,) = HfArgumentParser(Seq2SeqTrainingArguments).parse_args_into_dataclasses()
model = AutoModelForSeq2SeqLM.from_pretrained("google/flan-t5-base")
Seq2SeqTrainer(model=model, args=args, train_dataset=rows, eval_dataset=rows).train()
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--predict_with_generate", ["SRC041w"]),
        ("--predict_with_generate True --do_eval", ["SRC041w"]),
        ("--predict-with-generate --do_eval", ["SRC041w"]),
        ("--predict_with_generate False", []),
        ("--do_eval", []),
        ("--predict_with_generate --generation_max_length 128", []),
        ("--predict_with_generate $MORE", []),
    ],
)
def test_commands_that_let_a_seq2seq_trainer_generate(
    options: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "run.sh").write_text(
        f"python train.py --output_dir out {options}\n", encoding="utf-8"
    )
    (tmp_path / "train.py").write_text(PARSED, encoding="utf-8")
    found = lint([tmp_path / "train.py"], select=["SRC041"], allow_unjudged=True).findings
    assert [f"{one.code}{one.severity[0]}" for one in found] == expected
