"""A case that names a token names the right one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.checks.pages import block, sections
from tests.checks.pages.data import findings
from truetune.checks.catalogue import find
from truetune.checks.run import view
from truetune.spec.files import spec_of

TOKENS = {
    "prefix-differencing-mask-misaligned": " It",
    "thinking-stripped-from-history": " It",
    "empty-think-block-supervised": "<",
    "default-system-prompt-injected": "<|im_start|>",
    "render-then-retokenize-double-bos": "<|endoftext|>",
    "plain-string-pair-skips-template": " It",
    "rewritten-turns-untrained": "T",
    "wrong-field-mapped": "Is",
    "special-token-in-content": "<|im_end|>",
    "tool-arguments-double-encoded": ' "',
    "boundary-token-merge": " wait",
    "response-marker-not-found": "\n",
    "eos-not-appended-by-tokenizer": ".",
    "duplicate-eos": "<|im_end|>",
    "truncation-cuts-the-terminator": " nine",
    "truncation-leaves-no-label": "It",
    "sft-max-length-default-1024": " one",
    "ids-beyond-embedding": "user",
    "answer-not-terminated": ".",
    "preference-pairs-identical": "It",
    "preference-pairs-swapped": "Wh",
    "pair-truncated-on-one-side": " It",
    "pair-side-not-terminated": ".",
    "bos-or-eos-inside-a-preference-pair": "<|im_end|>",
    "pair-prompt-not-shared": "It",
    "pairs-lack-diversity": " ",
}
"""What the first case of the example on each rule's page points at"""


@pytest.mark.parametrize("name", TOKENS)
def test_the_token_of_a_case(name: str, tmp_path: Path) -> None:
    text = block(sections(find(name))["Example"])
    case = findings(find(name), text, tmp_path)[0].cases[0]
    settings = {k: v for k, v in (yaml.safe_load(text).get("spec") or {}).items() if k != "ignore"}
    data, tokenizer = str(tmp_path / "data.jsonl"), str(tmp_path / "tokenizer")
    assert case.origin is not None
    assert case.token is not None
    views = view(spec_of({**settings, "data": data, "tokenizer": tokenizer}, "page"), case.origin.row)
    shown = next(v for v in views if v.example.rendering.turn in (None, case.turn))
    assert shown.pieces[case.token] == TOKENS[name]
    if name == "duplicate-eos":
        assert list(shown.pieces).count("<|im_end|>") == 3
        assert "<|im_end|>" not in shown.pieces[case.token + 1 :]
    if name == "render-then-retokenize-double-bos":
        assert shown.pieces[:2] == ("<|endoftext|>",) * 2
        assert case.token == 1
