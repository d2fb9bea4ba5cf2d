"""What is known of models by their names: held against real tokenizers, and what rules make of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.source.table import codes
from tests.parts import folder
from truetune.checks.lint import lint
from truetune.checks.source.evidence.tokenizer_facts_of_published_models import (
    FAMILIES,
    FINE_TUNES,
    family_named_in_derivative,
    family_of_model,
)
from truetune.render.template_probes import (
    ANSWER,
    QUESTION,
    alternating_chat,
    load_tokenizer_and_template_of_run,
)
from truetune.settings.run_spec import RunSpec

PARTS = {
    "qwen2.5-instruct": "Qwen/Qwen2.5-1.5B-Instruct", "qwen3": "Qwen/Qwen3-8B", "qwen3.5": "Qwen/Qwen3.5-9B",
    "gpt-oss": "openai/gpt-oss-20b", "phi3": "microsoft/Phi-3-mini-4k-instruct", "phi4": "microsoft/phi-4",
    "smollm2": "HuggingFaceTB/SmolLM2-1.7B-Instruct", "gpt2": "openai-community/gpt2",
    "llama3-instruct": "meta-llama/Meta-Llama-3-8B-Instruct", "llama3.1-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "llama3.2-instruct": "unsloth/Llama-3.2-1B-Instruct", "llama2-chat": "NousResearch/Llama-2-7b-chat-hf",
    "llama2-base": "meta-llama/Llama-2-7b-hf", "llama3-base": "meta-llama/Meta-Llama-3-8B",
    "mistral-7b-v0.1": "mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
    "mistral-nemo": "mistralai/Mistral-Nemo-Instruct-2407", "gemma2": "google/gemma-2-9b-it",
    "gemma3": "google/gemma-3-4b-it",
}  # fmt: skip
"""A real tokenizer -> the name under which its model is published"""


@pytest.mark.parametrize(("part", "name"), PARTS.items())
def test_what_is_recorded_of_a_family_is_what_its_tokenizer_does(part: str, name: str) -> None:
    known = family_of_model(name)
    assert known is not None
    probes = load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder(part))))
    special = {role: token.token for role, token in probes.tokenizer.special.items()}
    bos = special.get("bos")
    if known.adds_bos is not None:
        assert probes.tokenizer.adds_bos == known.adds_bos
    text = probes.text(alternating_chat(QUESTION, ANSWER))
    if known.template_writes_bos is not None:
        assert text is not None
        assert (bos is not None and text.startswith(bos)) == known.template_writes_bos
    if known.has_pad is not None:
        assert ("pad" in special and special["pad"] != special["eos"]) == known.has_pad
    if known.eos is not None:
        assert special["eos"] == known.eos


@pytest.mark.parametrize(
    ("name", "like"),
    [
        (
            "/mnt/autodl-tmp/LLM-Research/Meta-Llama-3___1-8B-Instruct",
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        ("unsloth/llama-3-8b-Instruct-bnb-4bit", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ("models/base/Qwen3-1.5B/", "Qwen/Qwen-7B"),
        ("gpt2", "openai-community/gpt2"),
        ("CohereLabs/tiny-aya-global", "CohereForAI/aya-23-8B"),
        ("/mnt/autodl-fs/YuanLLM/Yuan2-2B-Mars-hf", "IEITYuan/Yuan2-2B-hf"),
        ("google/gemma-7b-it", "google/gemma-3-27b-it"),
    ],
)
def test_a_copy_of_a_published_model_is_known(name: str, like: str) -> None:
    assert family_of_model(name) == family_of_model(like) is not None


@pytest.mark.parametrize(
    "name",
    ["org/some", "NousResearch/Hermes-3-Llama-3.1-8B", "me/my-qwen", "deepseek-ai/DeepSeek-V3", "out/checkpoint-500",
     "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama", "THUDM/glm-4-9b-chat", ""],
)  # fmt: skip
def test_of_other_names_nothing_is_known(name: str) -> None:
    assert family_of_model(name) is None


def test_each_family_says_how_it_is_known() -> None:
    assert all(known.established for known in (*FAMILIES, *FINE_TUNES))


@pytest.mark.parametrize(
    ("name", "adds_bos"),
    [("Skywork/Skywork-Reward-Gemma-2-27B-v0.2", True), ("me/shieldgemma", None), ("me/my-Llama3-sft", True),
     ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None), ("me/legal_qwen3_sft", False), ("org/some", None)],
)  # fmt: skip
def test_a_fine_tune_keeps_the_tokenizer_of_the_base_in_its_name(
    name: str, adds_bos: bool | None
) -> None:
    base = family_named_in_derivative(name)
    assert (base.adds_bos if base else None) == adds_bos


def _again(name: str, more: str = "") -> str:
    return (
        f"t = AutoTokenizer.from_pretrained({name!r})\n{more}"
        "text = t.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)\n"
        "out = model.generate(**t(text, return_tensors='pt'), max_new_tokens=9)\n"
    )


LLAMA, UNKNOWN = "meta-llama/Llama-3.1-8B-Instruct", "org/of-tomorrow"
ROWS = (
    "def encode(row):\n    text = t.apply_chat_template(row['chat'], tokenize=False)\n    return"
    " t(text)\nds.map(encode)\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_again(LLAMA), ["SRC009w"]),
        (_again("mistralai/Mistral-7B-Instruct-v0.3"), ["SRC009w"]),
        (_again("google/gemma-2-2b-it"), ["SRC009w"]),
        (_again("CohereForAI/c4ai-command-r-v01"), ["SRC009w"]),
        *((_again(name), []) for name in ("Qwen/Qwen2.5-7B-Instruct", "unsloth/gpt-oss-20b", "microsoft/phi-4", UNKNOWN,
                                          "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "HuggingFaceH4/zephyr-7b-beta",
                                          "/scratch/models/qwen3_8b_sft_merged")),
        (_again(LLAMA, "t.chat_template = '{{ messages }}'\n"), []),
        (_again(LLAMA, "t.chat_template = '{{ bos_token }}{{ messages }}'\n"), ["SRC009w"]),
        (_again(LLAMA, "if t.chat_template is None:\n    t.chat_template = '{{ messages }}'\n"), ["SRC009w"]),
        (_again(LLAMA, "t = get_chat_template(t, 'chatml')\n"), []),
        (f"t = AutoTokenizer.from_pretrained({UNKNOWN!r})\n{ROWS}", ["SRC009i"]),
        (f"t = AutoTokenizer.from_pretrained('Qwen/Qwen3-8B')\n{ROWS}", []),
        (f"t = AutoTokenizer.from_pretrained({LLAMA!r})\n{ROWS}", ["SRC009w"]),
        ("class Chats:\n    def __init__(self, tokenizer):\n        self.t = tokenizer\n    def __getitem__(self, i):\n"
         "        return self.t(self.t.apply_chat_template(self.rows[i], tokenize=False))\n", ["SRC009i"]),
    ],
)  # fmt: skip
def test_a_second_bos_is_warned_of_where_it_is_known(
    text: str, expected: list[str], tmp_path: Path
) -> None:
    assert codes(text, tmp_path, "SRC009") == expected


DEFAULTS = (
    (
        "parser.add_argument('--base-model', default={!r})\nargs = parser.parse_args()\nname ="
        " args.base_model\n"
    ),
    "@dataclass\nclass Arguments:\n    base: str = {!r}\nname = arguments.base\n",
    "@dataclass\nclass Arguments:\n    base: str = field(default={!r})\nname = arguments.base\n",
    "config = {{'base': {!r}, 'rank': rank()}}\nname = load(config)['base']\n",
    "name = settings().get('base', {!r})\n",
    "name = os.getenv('BASE', {!r})\n",
    "name = getattr(options, 'base', {!r})\n",
    "def load(name={!r}):\n    return name\nname = load()\n",
)
"""Where a name that is not written at the call stands in the file"""


@pytest.mark.parametrize("given", DEFAULTS)
@pytest.mark.parametrize(
    ("name", "expected"),
    [(LLAMA, ["SRC009w"]), ("me/Reward-Gemma-2-27B", ["SRC009w"]), ("Qwen/Qwen3-8B", [])],
)
def test_a_model_is_known_by_a_default(
    given: str, name: str, expected: list[str], tmp_path: Path
) -> None:
    text = "import os\n" + given.format(name) + _again("x").replace("'x'", "name")
    assert codes(text, tmp_path, "SRC009") == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [((LLAMA, "Qwen/Qwen3-8B"), ["warning"]), (("Qwen/Qwen3-8B", "Qwen/Qwen2.5-7B"), []),
     (("Qwen/Qwen3-8B", "google/gemma-2-2b-it"), ["warning"]), (("Qwen/Qwen3-8B", UNKNOWN), [])],
)  # fmt: skip
def test_one_of_several_models_that_gets_two_is_enough(
    names: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    loops = (
        f"for name in {[*names]!r}:\n",
        f"for entry in {[{'id': name, 'rank': 8} for name in names]!r}:\n    name = entry['id']\n",
    )
    for loop in loops:
        text = loop + "".join(
            f"    {line}\n" for line in _again("x").replace("'x'", "name").splitlines()
        )
        assert _found(text, "SRC009", tmp_path) == expected


def _found(text: str, rule: str, folder: Path) -> list[str]:
    """Severities in a file that loads no other model."""
    path = folder / "train.py"
    path.write_text("from transformers import AutoModelForCausalLM, AutoTokenizer\n" + text)
    return [finding.severity for finding in lint([path], select=[rule]).findings]


@pytest.mark.parametrize(
    ("name", "expected"), [(LLAMA, ["warning"]), ("Qwen/Qwen3-8B", []), (UNKNOWN, [])]
)
def test_what_the_file_saved_is_what_it_loaded(
    name: str, expected: list[str], tmp_path: Path
) -> None:
    text = (
        f"tok = AutoTokenizer.from_pretrained({name!r})\nmodel ="
        f" AutoModelForCausalLM.from_pretrained({name!r})\ntok.save_pretrained('mine')\n"
        + _again("mine")
    )
    assert _found(text, "SRC009", tmp_path) == expected


@pytest.mark.parametrize(
    "more", ["images=[image]", "audio=sound, sampling_rate=16000", "videos=clips"]
)
def test_a_processor_is_no_tokenizer(more: str, tmp_path: Path) -> None:
    text = (
        "class Rows:\n    def __init__(self, tokenizer):\n        self.tokenizer = tokenizer\n"
        "    def __getitem__(self, i):\n"
        "        text = self.tokenizer.apply_chat_template(self.rows[i], tokenize=False)\n"
        f"        if self.media:\n            return self.tokenizer(text=[text], {more})\n"
        "        return self.tokenizer(text=[text])\n"
    )
    assert codes(text, tmp_path, "SRC009") == []


def test_a_tokenizer_at_hand_is_asked_itself(tmp_path: Path) -> None:
    for part, expected in (
        ("llama3-instruct", ["SRC009w"]),
        ("llama3-instruct-launch", []),
        ("deepseek-v3", []),
    ):
        assert codes(_again(str(folder(part))), tmp_path, "SRC009") == expected


ADD = "t = AutoTokenizer.from_pretrained({!r})\nt.add_tokens(['<call>', '</call>'])\n"
TRAIN = "Trainer(model=model, train_dataset=ds).train()\n"
GUARDED = (
    "if 'gemma' in args.model_name_or_path.lower():\n    tok.add_tokens(['<call>'])\n",
    "if model_type == 'orion':\n    tok.add_tokens(['<call>'])\n",
    "if args.template.startswith('yuan'):\n    tok.add_tokens(['<call>'])\n",
)
ALPACA = """
def resize(special_tokens_dict, tokenizer, model):
    tokenizer.add_special_tokens(special_tokens_dict)
    model.resize_token_embeddings(len(tokenizer))

def train():
    special_tokens_dict = dict()
    if tok.pad_token is None:
        special_tokens_dict["pad_token"] = "[PAD]"
    if tok.eos_token is None:
        special_tokens_dict["eos_token"] = "</s>"
    if tok.unk_token is None:
        special_tokens_dict["unk_token"] = "<unk>"
    resize(special_tokens_dict=special_tokens_dict, tokenizer=tok, model=model)
"""


@pytest.mark.parametrize(
    ("text", "resize", "frozen"),
    [
        (ADD.format("meta-llama/Llama-3.1-8B"), ["SRC045w"], ["SRC052e"]),
        (ADD.format("gpt2"), ["SRC045w"], ["SRC052e"]),
        (ADD.format("Qwen/Qwen2.5-0.5B"), [], ["SRC052e"]),
        (ADD.format("bigscience/bloom-1b7"), [], ["SRC052e"]),
        (ADD.format("/mnt/YuanLLM/Yuan2-2B-Mars-hf"), [], []),
        (ADD.format(UNKNOWN), [], ["SRC052i"]),
        (ADD.format(UNKNOWN) + TRAIN, ["SRC045i"], ["SRC052i"]),
        (ADD.format(UNKNOWN) + "model.resize_token_embeddings(len(t))\n", [], ["SRC052e"]),
        (ADD.format("meta-llama/Llama-3.1-8B").replace("<call>", "<|reserved_0|>").replace("</call>", "<s>"),
         [], ["SRC052e"]),
        *((text, [], []) for text in GUARDED),
        (ALPACA, [], []),
        ("t = LlamaTokenizer.from_pretrained(path)\nm = LlamaForCausalLM.from_pretrained(path)\n"
         "t.add_special_tokens({'pad_token': '[PAD]'})\n", ["SRC045w"], []),
        ("tok.add_special_tokens({'additional_special_tokens': ['[A]']})\n" + TRAIN, ["SRC045i"], ["SRC052i"]),
    ],
)  # fmt: skip
def test_tokens_are_new_where_it_is_known(
    text: str, resize: list[str], frozen: list[str], tmp_path: Path
) -> None:
    text += "config = LoraConfig(r=8)\n"
    assert codes(text, tmp_path, "SRC045") == resize
    assert codes(text, tmp_path, "SRC052") == frozen


def test_rows_without_a_token_are_counted_in_the_models_own_files(tmp_path: Path) -> None:
    here = tmp_path / "model"
    here.mkdir()
    (here / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0, "b": 1}}}')
    for rows, expected in ((2, ["SRC045w"]), (3, ["SRC045w"]), (4, [])):
        (here / "config.json").write_text(f'{{"vocab_size": {rows}}}')
        assert codes(ADD.format(str(here)), tmp_path, "SRC045") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Qwen/Qwen3-8B", ["warning"]), ("google-t5/t5-small", ["warning"]), ("bigscience/bloom-560m", ["warning"]),
     ("gpt2", []), ("meta-llama/Llama-2-7b-hf", []), ("baichuan-inc/Baichuan2-7B-Base", [])],
)  # fmt: skip
def test_rows_are_cut_where_there_are_more_than_tokens(
    name: str, expected: list[str], tmp_path: Path
) -> None:
    text = (
        f"t = AutoTokenizer.from_pretrained({name!r})\nt.pad_token = t.eos_token\n"
        f"m = AutoModelForCausalLM.from_pretrained({name!r})\nm.resize_token_embeddings(len(t))\n"
    )
    assert _found(text, "SRC046", tmp_path) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Qwen/Qwen2.5-0.5B", []), ("google/gemma-2-2b", []), ("meta-llama/Llama-3.1-8B", ["SRC007w"]),
     ("gpt2", ["SRC007w"]), (UNKNOWN, ["SRC007w"])],
)  # fmt: skip
def test_a_pad_that_is_there_is_not_set(name: str, expected: list[str], tmp_path: Path) -> None:
    text = (
        f"t = AutoTokenizer.from_pretrained({name!r})\nif t.pad_token is None:\n    t.pad_token ="
        " t.eos_token\n    t.pad_token_id = t.eos_token_id\ncollator ="
        " DataCollatorForLanguageModeling(t, mlm=False)\n"
    )
    assert codes(text, tmp_path, "SRC007") == expected


@pytest.mark.parametrize("given", DEFAULTS)
@pytest.mark.parametrize(
    ("name", "expected"), [("Qwen/Qwen3-8B", []), ("me/qwen3-sft", []), ("gpt2", ["SRC007w"])]
)
def test_a_default_says_whether_there_is_a_pad(
    given: str, name: str, expected: list[str], tmp_path: Path
) -> None:
    text = "import os\n" + given.format(name) + (
        "t = AutoTokenizer.from_pretrained(name)\nif not t.pad_token:\n    t.pad_token = t.eos_token\n"
        "collator = DataCollatorForLanguageModeling(t, mlm=False)\n"
    )  # fmt: skip
    assert codes(text, tmp_path, "SRC007") == expected


@pytest.mark.parametrize(
    ("name", "template", "more", "expected"),
    [
        ("meta-llama/Llama-3.2-3B", "{{ m }}<|eot_id|>", "", []),
        ("meta-llama/Llama-3.2-3B", "{{ m }}<|end_of_text|>", "", ["SRC007e"]),
        ("meta-llama/Llama-3.2-3B", "{{ m }}<|im_end|>{{ eos_token }}", "", ["SRC007e"]),
        ("meta-llama/Llama-3.2-3B-Instruct", "{{ m }}<|eot_id|>", "", ["SRC007e"]),
        (
            "meta-llama/Llama-3.2-3B",
            "{{ m }}<|eot_id|>",
            "text = row['text'] + t.eos_token\n",
            ["SRC007e"],
        ),
        (
            "meta-llama/Llama-3.2-3B",
            "{{ m }}<|eot_id|>",
            "t.eos_token = '<|eot_id|>'\n",
            ["SRC007e"],
        ),
        (UNKNOWN, "{{ m }}<|eot_id|>", "", ["SRC007e"]),
    ],
)
def test_a_template_of_the_file_says_what_ends_turns(
    name: str, template: str, more: str, expected: list[str], tmp_path: Path
) -> None:
    text = (
        f"t = AutoTokenizer.from_pretrained({name!r})\nt.chat_template = {template!r}\n{more}"
        "t.pad_token = t.eos_token\ncollator = DataCollatorForLanguageModeling(t, mlm=False)\n"
    )
    assert codes(text, tmp_path, "SRC007") == expected


def _engine(name: str, call: str) -> str:
    return (
        "from vllm import LLM\n"
        f"t = AutoTokenizer.from_pretrained({name!r})\nllm = LLM(model={name!r})\n"
        "def text(r):\n    return t.apply_chat_template(r, tokenize=False, add_generation_prompt=True)\n"
        f"outs = {call}\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_engine(LLAMA, "llm.generate([text(r) for r in rows])"), ["SRC009w"]),
        (_engine(LLAMA, "llm.generate(text(row))"), ["SRC009w"]),
        (_engine(LLAMA, "llm.generate(prompts=[text(r) for r in rows])"), ["SRC009w"]),
        (_engine("google/gemma-2-2b-it", "llm.generate([text(r) for r in rows])"), ["SRC009w"]),
        (_engine("Qwen/Qwen3-8B", "llm.generate([text(r) for r in rows])"), []),
        (_engine(UNKNOWN, "llm.generate([text(r) for r in rows])"), []),
        (_engine(LLAMA, "llm.chat(rows)"), []),
        (_engine(LLAMA, "llm.generate([r['question'] for r in rows])"), []),
        (
            _engine(
                LLAMA,
                "llm.generate([{'prompt_token_ids': t.apply_chat_template(r)} for r in rows])",
            ),
            [],
        ),
    ],
)
def test_a_second_bos_of_an_engine(text: str, expected: list[str], tmp_path: Path) -> None:
    assert codes(text, tmp_path, "SRC009") == expected


HARNESS = "import lm_eval\nfrom lm_eval.models.huggingface import HFLM\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lm_eval.simple_evaluate(model='hf', model_args='pretrained=a/b-Instruct', tasks=['gsm8k'])", True),
        ("kw = dict(tasks=['gsm8k'])\nlm_eval.simple_evaluate(model=HFLM('a/b-Instruct'), **kw)", True),
        ("lm_eval.simple_evaluate(HFLM(pretrained='a/b-chat', peft='out'), tasks=['gsm8k'])", True),
        (
            "def run(**kw):\n    lm = HFLM(**kw)\n    return lm_eval.simple_evaluate(model=lm, tasks=['gsm8k'])\n"
            "run(pretrained='a/b-it')",
            True,
        ),
        (
            "kw = dict(tasks=['gsm8k'], apply_chat_template=True)\n"
            "lm_eval.simple_evaluate(model=HFLM('a/b-Instruct'), **kw)",
            False,
        ),
        ("lm_eval.simple_evaluate(model=HFLM(pretrained='a/b'), tasks=['gsm8k'])", False),
        ("lm_eval.simple_evaluate(model=HFLM('a/b-Instruct'), **given())", False),
        ("lm_eval.simple_evaluate(model=lm, tasks=['gsm8k'])", False),
    ],
)  # fmt: skip
def test_a_harness_that_leaves_the_template_out(text: str, found: bool, tmp_path: Path) -> None:
    assert codes(HARNESS + text, tmp_path, "SRC065") == ["SRC065w"] * found
