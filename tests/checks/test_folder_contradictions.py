"""Single edits of a published tokenizer's files, each of which breaks what a second file says or what text becomes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import truetune
from tests.parts import folder as folder_of_part

IM_START, IM_END, END_OF_TEXT = 151644, 151645, 151643
SOUND_GENERATION = {
    "bos_token_id": END_OF_TEXT,
    "eos_token_id": [IM_END, END_OF_TEXT],
    "pad_token_id": END_OF_TEXT,
    "repetition_penalty": 1.05,
    "suppress_tokens": [IM_START],
    "bad_words_ids": [[198, IM_END]],
    "max_new_tokens": 512,
}
QUESTION, ANSWER = "When does the pool open?", "It opens at nine, and closes at six in the evening."

Edit = Callable[[Path], None]


def edit_json(name: str, **changes: Any) -> Edit:
    """Set keys of a JSON file of the folder."""

    def apply(folder: Path) -> None:
        path = folder / name
        values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**values, **changes}), encoding="utf-8")

    return apply


def edit_added_token(content: str, **changes: Any) -> Edit:
    """Change one added token of tokenizer.json."""

    def apply(folder: Path) -> None:
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        token = next(one for one in values["added_tokens"] if one["content"] == content)
        token.update(changes)
        path.write_text(json.dumps(values), encoding="utf-8")

    return apply


def remove_added_token(content: str) -> Edit:
    """Take one added token out of tokenizer.json."""

    def apply(folder: Path) -> None:
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text(encoding="utf-8"))
        values["added_tokens"] = [
            one for one in values["added_tokens"] if one["content"] != content
        ]
        path.write_text(json.dumps(values), encoding="utf-8")

    return apply


def normalize_by(*kinds: dict[str, Any]) -> Edit:
    """Another normalizer in tokenizer.json."""
    return edit_json(
        "tokenizer.json", normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, *kinds]}
    )


def generation(**changes: Any) -> Edit:
    """Set keys of generation_config.json."""
    return edit_json("generation_config.json", **changes)


CONTRADICTIONS: dict[str, tuple[Edit, str]] = {
    "EOS of another vocabulary": (
        generation(eos_token_id=2),
        "special-id-is-ordinary-text",
    ),
    "one of two stop ids is text": (
        generation(eos_token_id=[IM_END, 13]),
        "special-id-is-ordinary-text",
    ),
    "pad is text": (generation(pad_token_id=0), "special-id-is-ordinary-text"),
    "a forced token is text": (
        generation(forced_eos_token_id=2),
        "special-id-is-ordinary-text",
    ),
    "an id beyond the vocabulary": (
        edit_json("config.json", eos_token_id=999_999),
        "special-id-is-ordinary-text",
    ),
    "the stop token is suppressed": (
        generation(suppress_tokens=[IM_END]),
        "stop-token-is-suppressed",
    ),
    "the stop token is a bad word": (
        generation(bad_words_ids=[[IM_END]]),
        "stop-token-is-suppressed",
    ),
    "a mark takes the blanks beside it, by one file": (
        edit_added_token("<|im_end|>", lstrip=True),
        "added-tokens-disagree",
    ),
    "a mark is special by one file": (
        edit_added_token("<|im_start|>", special=False),
        "added-tokens-disagree",
    ),
    "a mark is missing in one file": (
        remove_added_token("<|im_end|>"),
        "added-tokens-disagree",
    ),
    "another id in added_tokens.json": (
        edit_json("added_tokens.json", **{"<|im_end|>": 151_700}),
        "added-tokens-disagree",
    ),
    "letters are lowered": (normalize_by({"type": "Lowercase"}), "tokenizer-loses-text"),
    "accents are dropped": (
        normalize_by({"type": "NFD"}, {"type": "StripAccents"}),
        "tokenizer-loses-text",
    ),
    "line breaks are blanks": (
        normalize_by({"type": "Replace", "pattern": {"String": "\n"}, "content": " "}),
        "tokenizer-loses-text",
    ),
    "no decoder": (edit_json("tokenizer.json", decoder=None), "tokenizer-loses-text"),
    "a penalty that spoils answers": (
        generation(repetition_penalty=1.8),
        "generation-config-beside-tokenizer-distorts-answers",
    ),
    "a least length": (
        generation(min_length=400),
        "generation-config-beside-tokenizer-distorts-answers",
    ),
    "answers end after eight tokens": (
        generation(max_new_tokens=8),
        "rows-longer-than-saved-limits",
    ),
    "texts are cut at sixteen tokens": (
        edit_json("tokenizer_config.json", model_max_length=16),
        "rows-longer-than-saved-limits",
    ),
    "the model knows sixteen positions": (
        edit_json("config.json", max_position_embeddings=16),
        "rows-longer-than-saved-limits",
    ),
    "another template for older readers": (
        edit_json("tokenizer_config.json", chat_template="{{ messages[0].content }}"),
        "chat-templates-disagree",
    ),
    "another template for processors": (
        edit_json("chat_template.json", chat_template="{{ messages[0].content }}"),
        "chat-templates-disagree",
    ),
    "BOS is added by one reader": (
        edit_json("tokenizer_config.json", add_bos_token=True, bos_token="<|endoftext|>"),
        "added-bos-or-eos-contradicts-setting",
    ),
}
RULES = {rule for _, rule in CONTRADICTIONS.values()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of a published tokenizer, with the files of a model that agree with it."""
    folder = Path(shutil.copytree(folder_of_part("qwen2.5-instruct"), tmp_path / "model"))
    generation(**SOUND_GENERATION)(folder)
    edit_json(
        "config.json",
        model_type="qwen2",
        eos_token_id=IM_END,
        vocab_size=151_936,
        max_position_embeddings=32_768,
    )(folder)
    return folder


def findings_of_rules(model: Path) -> set[str]:
    """Which of the rules of this page find something when rows are checked with the folder."""
    rows = model.parent / "rows.jsonl"
    chat = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    rows.write_text(json.dumps({"messages": chat}) + "\n", encoding="utf-8")
    report = truetune.check(data=str(rows), tokenizer=str(model), select=tuple(RULES))
    return {finding.rule for finding in report.findings if finding.severity != "info"}


def test_a_folder_that_agrees_with_itself_has_no_finding(model: Path) -> None:
    assert findings_of_rules(model) == set()


@pytest.mark.parametrize("edit", CONTRADICTIONS)
def test_a_single_edit_is_found(edit: str, model: Path) -> None:
    apply, rule = CONTRADICTIONS[edit]
    apply(model)
    assert findings_of_rules(model) == {rule}


@pytest.mark.parametrize(
    "family", ["llama3.1-instruct", "mistral-7b-v0.3", "gemma3", "phi3.5", "deepseek-r1", "gpt-oss"]
)
def test_published_tokenizers_have_no_finding(family: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folder_of_part(family), tmp_path / "model"))
    assert findings_of_rules(folder) == set()


TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
CONTENT<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.mark.parametrize(
    "content",
    [
        "{{ m.content[:500] }}",
        "{{ m.content | truncate(200) }}",
        "{{ m.content.split('\\n\\n')[0] }}",
        "{{ m.content | lower }}",
        "{{ m.content | replace('\\n', ' ') }}",
        "{{ m.content | tojson }}",
        "{{ m.content | e }}",
        "{% if m.role == 'user' %}{{ m.content[:900] }}{% else %}{{ m.content }}{% endif %}",
    ],
)
def test_a_template_that_changes_contents_is_found(content: str, model: Path) -> None:
    (model / "chat_template.jinja").write_text(TEMPLATE.replace("CONTENT", content), "utf-8")
    assert rules_of_template(model) == ["template-changes-contents"]


@pytest.mark.parametrize("content", ["{{ m.content }}", "{{ m.content | trim }}"])
def test_a_template_that_writes_contents_has_no_finding(content: str, model: Path) -> None:
    (model / "chat_template.jinja").write_text(TEMPLATE.replace("CONTENT", content), "utf-8")
    assert rules_of_template(model) == []


def rules_of_template(model: Path) -> list[str]:
    """The findings of the rule on contents, for a folder without rows."""
    select = ("template-changes-contents",)
    return [one.rule for one in truetune.check(tokenizer=str(model), select=select).findings]


@pytest.mark.parametrize(
    ("ending", "found"),
    [
        ("", True),
        ("{% if false %}<|im_start|>assistant\n{% endif %}", True),
        ("{% if add_generation_prompt %}Answer: {% endif %}", False),
        ("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", False),
    ],
)
def test_a_generation_prompt_without_the_header_is_found(
    ending: str, found: bool, model: Path
) -> None:
    """One that adds something else is no beginning of the trained text: another rule is about that."""
    turns = TEMPLATE.partition("{% if add_generation_prompt %}")[0].replace(
        "CONTENT", "{{ m.content }}"
    )
    (model / "chat_template.jinja").write_text(turns + ending, "utf-8")
    select = ("generation-prompt-without-header",)
    findings = truetune.check(tokenizer=str(model), select=select).findings
    assert bool(findings) == found


def test_a_tokenizer_that_adds_eos_to_prompts_is_found(model: Path) -> None:
    end = {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    edit_json(
        "tokenizer.json",
        post_processor={
            "type": "TemplateProcessing",
            "single": [text, end],
            "pair": [text, other],
            "special_tokens": {
                "<|im_end|>": {"id": "<|im_end|>", "ids": [IM_END], "tokens": ["<|im_end|>"]}
            },
        },
    )(model)
    select = ("prompts-end-in-eos-by-tokenizer",)
    findings = truetune.check(tokenizer=str(model), select=select).findings
    assert [one.rule for one in findings] == list(select)


def severities(model: Path, rows: list[dict[str, Any]], rule: str) -> list[str]:
    """What one rule finds in rows and a folder."""
    path = model.parent / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = truetune.check(data=str(path), tokenizer=str(model), select=(rule,))
    return [finding.severity for finding in report.findings]


def chat(*contents: str) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [
            {"role": roles[number % 2], "content": content}
            for number, content in enumerate(contents)
        ]
    }


WORDS = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (chat("?", WORDS), []),
        (chat("?", WORDS, "?", WORDS, "?", WORDS), []),
        (chat(f"{WORDS} {WORDS} {WORDS}?", WORDS), []),
        ({"text": f"{WORDS} {WORDS} {WORDS}"}, []),
        (chat("?", f"{WORDS} {WORDS}"), ["warning"]),
        (chat("?", "no", "?", f"{WORDS} {WORDS}", "?", "yes"), ["warning"]),
    ],
)
def test_each_answer_is_held_against_the_limit_alone(
    row: dict[str, Any], found: list[str], model: Path
) -> None:
    generation(max_new_tokens=12)(model)
    assert severities(model, [row, chat("?", "no")], "rows-longer-than-saved-limits") == found


def test_the_pad_token_is_text_that_answers_hold(model: Path) -> None:
    rows = [chat(QUESTION, f"Sure! {ANSWER}"), chat(QUESTION, ANSWER)]
    rule = "special-id-is-ordinary-text"
    for pad in ("[PAD]", "<|endoftext|>", "<|fim_pad|>"):
        edit_json("tokenizer_config.json", pad_token=pad)(model)
        assert severities(model, rows, rule) == []
    edit_json("tokenizer_config.json", pad_token="!")(model)
    assert severities(model, rows, rule) == ["warning"]
    # The text is right: it is the pad token that has to change.
    assert severities(model, rows, "special-token-in-content") == []


@pytest.mark.parametrize(
    ("edit", "rule", "found"),
    [
        (generation(bos_token_id=1), "special-id-is-ordinary-text", ["warning"]),
        (generation(eos_token_id=2, bos_token_id=1), "special-id-is-ordinary-text", ["error"]),
        (generation(suppress_tokens=[END_OF_TEXT]), "stop-token-is-suppressed", ["info"]),
        (generation(suppress_tokens=[IM_END]), "stop-token-is-suppressed", ["error"]),
        (edit_added_token("<|im_end|>", normalized=True), "added-tokens-disagree", ["info"]),
        (edit_added_token("<|im_end|>", rstrip=True), "added-tokens-disagree", ["warning"]),
        (remove_added_token("<|im_end|>"), "added-tokens-disagree", ["error"]),
    ],
)
def test_what_does_little_harm_is_no_error(
    edit: Edit, rule: str, found: list[str], model: Path
) -> None:
    edit(model)
    assert severities(model, [chat(QUESTION, ANSWER)], rule) == found


def test_a_vocabulary_that_loses_capitals_by_design_is_not_judged(tmp_path: Path) -> None:
    words = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", *"abcdefghijklmnopqrstuvwxyz", "the", "##s"]
    model = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {word: id for id, word in enumerate(words)},
    }
    whole = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": model,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "[PAD]"}', encoding="utf-8")
    report = truetune.check(tokenizer=str(tmp_path), select=("tokenizer-loses-text",))
    assert report.findings == ()
    assert [part.what for part in report.not_judged] == ["tokenizer-loses-text"]
