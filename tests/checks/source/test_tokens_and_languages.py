"""Turn marks added as plain tokens, target languages that are not forced, and Gemma's BOS that is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from truetune.checks.lint import lint

TOK = "from transformers import AutoTokenizer, AddedToken\n"
TOK += "tok = AutoTokenizer.from_pretrained('meta-llama/Llama-3.2-3B')\n"
PLAIN = {
    "list": TOK + "tok.add_tokens(['<|im_start|>', '<|im_end|>'])\n",
    "one": TOK + "END = '<|im_end|>'\ntok.add_tokens(END)\ntok.eos_token = END\n",
    "named": TOK
    + "NEW = ['<|user|>', '<|assistant|>', '<|end|>']\ntok.add_tokens(NEW, special_tokens=False)\n",
    "objects": TOK + "tok.add_tokens([AddedToken('<|im_end|>', normalized=False)])\n",
    "function": TOK
    + "def extend(tokenizer):\n    tokenizer.add_tokens(['<start_of_turn>', '<end_of_turn>'])\nextend(tok)\n",
    "among others": TOK + "tok.add_tokens(['<tool_call>', '<|eot|>'])\n",
}
SPECIAL = {
    "special": TOK + "tok.add_tokens(['<|im_start|>', '<|im_end|>'], special_tokens=True)\n",
    "objects": TOK + "tok.add_tokens([AddedToken('<|im_end|>', special=True)])\n",
    "add_special_tokens": TOK
    + "tok.add_special_tokens({'additional_special_tokens': ['<|im_end|>']})\n",
    "both": TOK
    + "tok.add_tokens(['<|im_end|>'])\ntok.add_special_tokens({'additional_special_tokens': ['<|im_end|>']})\n",
    "tools": TOK + "tok.add_tokens(['<tool_call>', '</tool_call>', '<think>'])\n",
    "words": TOK + "tok.add_tokens(['pembrolizumab', '<gene>'])\n",
    "unknown": TOK
    + "import sys\ntok.add_tokens(['<|im_end|>'], special_tokens=sys.argv[1] == 'y')\n",
}
NLLB = """
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline, Seq2SeqTrainingArguments
tok = AutoTokenizer.from_pretrained("facebook/nllb-200-distilled-600M", src_lang="eng_Latn")
model = AutoModelForSeq2SeqLM.from_pretrained("out/nllb")
enc = tok("Hello there", return_tensors="pt")
"""
NOT_FORCED = {
    "nllb": NLLB + "print(tok.decode(model.generate(**enc)[0]))\n",
    "m2m": NLLB.replace("facebook/nllb-200-distilled-600M", "facebook/m2m100_418M")
    + "def go():\n    return model.generate(enc.input_ids, num_beams=4)\ngo()\n",
    "mbart": """
from transformers import MBartForConditionalGeneration, MBart50TokenizerFast
tok = MBart50TokenizerFast.from_pretrained("me/mb50", src_lang="en_XX")
model = MBartForConditionalGeneration.from_pretrained("me/mb50")
model.generate(**tok("Hello", return_tensors="pt"))
""",
    "trainer": NLLB + "args = Seq2SeqTrainingArguments('out', predict_with_generate=True)\n",
    "pipeline": "from transformers import pipeline\n"
    "p = pipeline('translation', model='facebook/nllb-200-3.3B', src_lang='eng_Latn')\nprint(p('Hello'))\n",
}
FORCED = {
    "generate": NLLB
    + "model.generate(**enc, forced_bos_token_id=tok.convert_tokens_to_ids('deu_Latn'))\n",
    "config": NLLB + "model.generation_config.forced_bos_token_id = 5\nmodel.generate(**enc)\n",
    "decoder": NLLB + "model.generate(**enc, decoder_input_ids=start)\n",
    "pipeline": "from transformers import pipeline\n"
    "p = pipeline('translation', model='facebook/nllb-200-3.3B', src_lang='eng_Latn', tgt_lang='deu_Latn')\n",
    "one target": NLLB.replace("facebook/nllb-200-distilled-600M", "Helsinki-NLP/opus-mt-en-de")
    + "model.generate(**enc)\n",
    "to English": NLLB.replace(
        "facebook/nllb-200-distilled-600M", "facebook/mbart-large-50-many-to-one-mmt"
    )
    + "model.generate(**enc)\n",
    "trained only": NLLB + "loss = model(**enc, labels=enc.input_ids).loss\n",
}
GEMMA = """
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("google/gemma-2-9b-it")
model = AutoModelForCausalLM.from_pretrained("google/gemma-2-9b-it")
"""
LEFT_OUT = {
    "f-string": GEMMA
    + "def ask(q):\n    p = f'<start_of_turn>user\\n{q}<end_of_turn>\\n<start_of_turn>model\\n'\n"
    "    return model.generate(**tok(p, add_special_tokens=False, return_tensors='pt'))\n",
    "format": GEMMA + "T = '<start_of_turn>user\\n{}<end_of_turn>\\n<start_of_turn>model\\n'\n"
    "ids = tok.encode(T.format('hi'), add_special_tokens=False)\n",
    "sum": GEMMA
    + "def encode(row):\n    text = '<start_of_turn>user\\n' + row['q'] + '<end_of_turn>\\n' + row['a']\n"
    "    return tok(text, add_special_tokens=False, truncation=True)\nrows = rows.map(encode)\n",
    "list": GEMMA
    + "def encode(b):\n    t = [f'<start_of_turn>user\\n{q}<end_of_turn>\\n' for q in b['q']]\n"
    "    return tok(t, add_special_tokens=False)\nrows = rows.map(encode, batched=True)\n",
    "folder": GEMMA.replace("google/gemma-2-9b-it", "out/final")
    + "p = '<start_of_turn>user\\nhi<end_of_turn>\\n<start_of_turn>model\\n'\nx = tok(p, add_special_tokens=False)\n",
}
WRITTEN = {
    "by the tokenizer": GEMMA + "x = tok('<start_of_turn>user\\nhi<end_of_turn>\\n')\n",
    "in the text": GEMMA
    + "x = tok('<bos><start_of_turn>user\\nhi<end_of_turn>\\n', add_special_tokens=False)\n",
    "by its id": GEMMA
    + "x = [tok.bos_token_id] + tok.encode('<start_of_turn>user\\nhi<end_of_turn>\\n', add_special_tokens=False)\n",
    "by the template": GEMMA
    + "t = tok.apply_chat_template(m, tokenize=False)\nif '<start_of_turn>user' in t:\n"
    "    x = tok(t, add_special_tokens=False)\n",
    "an answer": GEMMA + "x = tok('<start_of_turn>user\\nhi<end_of_turn>\\n').input_ids\n"
    "y = tok('<start_of_turn>model\\nyes<end_of_turn>\\n', add_special_tokens=False).input_ids\n",
    "a marker": GEMMA + "ids = tok.encode('<start_of_turn>model\\n', add_special_tokens=False)\n",
    "the user's marker": GEMMA
    + "ids = tok.encode('<start_of_turn>user\\n', add_special_tokens=False)\n",
    "another family": GEMMA.replace("google/gemma-2-9b-it", "Qwen/Qwen2.5-7B")
    + "x = tok('<start_of_turn>user\\nhi<end_of_turn>\\n', add_special_tokens=False)\n",
}
CASES = {
    "turn-marks-added-as-plain-tokens": (PLAIN, SPECIAL),
    "target-language-not-forced": (NOT_FORCED, FORCED),
    "gemma-bos-left-out": (LEFT_OUT, WRITTEN),
}


def _found(text: str, folder: Path, rule: str) -> int:
    path = folder / "run.py"
    path.write_text(text, encoding="utf-8")
    return len(lint([path], select=[rule]).findings)


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, (faulty, _) in CASES.items() for name in faulty]
)
def test_faults(rule: str, name: str, tmp_path: Path) -> None:
    assert _found(CASES[rule][0][name], tmp_path, rule) == 1


@pytest.mark.parametrize(
    ("rule", "name"), [(rule, name) for rule, (_, sound) in CASES.items() for name in sound]
)
def test_near_misses(rule: str, name: str, tmp_path: Path) -> None:
    assert _found(CASES[rule][1][name], tmp_path, rule) == 0


def test_a_saved_generation_config_names_the_language(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "nllb"
    folder.mkdir(parents=True)
    (folder / "generation_config.json").write_text(json.dumps({"forced_bos_token_id": 256042}))
    assert _found(NOT_FORCED["nllb"], tmp_path, "target-language-not-forced") == 0
