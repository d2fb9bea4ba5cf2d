"""Tokenizers with several chat templates: which one renders a row is what transformers decides, and is said.

The folders are real tokenizers with their own template as `default`, beside published ones for tools and documents.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import parts
from tests.preloaded import commands_python
from tests.render.conversations import CONVERSATIONS, TOOLS, Message, turns
from truetune.checks.check_data import check, view_row_tokens
from truetune.data.conversation import Conversation, Origin
from truetune.errors import SpecError, TemplateError
from truetune.render.renderer import Renderer
from truetune.render.serving_contract import make_serving_contract, verify
from truetune.render.template_probes import load_tokenizer_and_template_of_run, make_probes
from truetune.render.tokenizer import Tokenizer, load_tokenizer
from truetune.report.report_terminal import report_as_text
from truetune.settings.run_spec import RunSpec

FAMILIES = ("llama3.1-instruct", "qwen2.5-instruct", "mistral-nemo", "smollm2")
PUBLISHED = {
    "tool_use": "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "rag": "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
}
"""What each template but `default` is, among those of llama.cpp; that of Cohere writes documents"""
NAMES = (None, "default", *PUBLISHED)
DOCUMENTS = [{"title": "Hours", "text": "Open until five."}]
LAYOUTS = ("list", "folder")


def several(to: Path, family: str, layout: str, *left_out: str) -> Path:
    """A copy of a tokenizer with all the templates but some, in one of the layouts that transformers has written."""
    folder = Path(shutil.copytree(parts.folder(family), to))
    own = folder / "chat_template.jinja"
    texts = {"default": own.read_text(encoding="utf-8")}
    by_stem = {path.stem: path for path in parts.templates("llama.cpp")}
    texts |= {name: by_stem[stem].read_text(encoding="utf-8") for name, stem in PUBLISHED.items()}
    own.unlink()
    texts = {name: text for name, text in texts.items() if name not in left_out}
    if layout == "list":
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        config["chat_template"] = [{"name": name, "template": text} for name, text in texts.items()]
        path.write_text(json.dumps(config), encoding="utf-8")
        return folder
    more = folder / "additional_chat_templates"
    more.mkdir()
    for name, text in texts.items():
        path = own if name == "default" else more / f"{name}.jinja"
        path.write_text(text, encoding="utf-8")
    return folder


def data(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return several(tmp_path / "tokenizer", "smollm2", "folder")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Two rows without tools (one with an empty list), three with them, one of plain text."""
    chat: list[Message] = turns(1)
    return data(
        tmp_path / "rows.jsonl",
        {"messages": chat},
        {"messages": chat, "tools": TOOLS},
        {"messages": turns(2), "tools": TOOLS},
        {"messages": chat, "tools": []},
        {"messages": turns(3), "tools": TOOLS},
        {"prompt": "Open?", "completion": "Yes."},
    )


def theirs(tokenizer: Any, row: Conversation, name: str | None) -> str | Exception:
    """What transformers makes of a row with the template of a name, or the exception that it raises."""
    messages = [
        {key: value for key, value in message.items() if value is not None}
        for message in row.messages
    ]
    try:
        return str(
            tokenizer.apply_chat_template(
                messages,
                tools=row.tools,
                documents=row.documents,
                chat_template=name,
                tokenize=False,
            )
        )
    except Exception as error:
        return error


class Loaded(NamedTuple):
    """A folder with several templates, as transformers and we load it."""

    theirs: Any
    ours: Tokenizer


@pytest.fixture(scope="module", params=FAMILIES)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    """Each family in turn. It is read once for all names of templates: each reading takes up to a second."""
    import transformers

    layout = LAYOUTS[FAMILIES.index(request.param) % len(LAYOUTS)]
    folder = several(tmp_path_factory.mktemp("several") / "tokenizer", request.param, layout)
    return Loaded(transformers.AutoTokenizer.from_pretrained(folder), load_tokenizer(str(folder)))


@pytest.mark.parametrize("name", NAMES)
def test_text_and_name_are_those_of_transformers(loaded: Loaded, name: str | None) -> None:
    tokenizer = loaded.theirs
    assert set(tokenizer.chat_template) == {"default", *PUBLISHED}
    spec = RunSpec(tokenizer=str(loaded.ours.folder), template=name, history="single")
    renderer = make_probes(loaded.ours, spec).renderer()
    rendered = 0
    for messages in CONVERSATIONS.values():
        for tools in (None, TOOLS):
            for documents in (None, DOCUMENTS):
                row = Conversation(
                    Origin("a.jsonl", 1, 0), "messages", messages, tools=tools, documents=documents
                )
                wanted = theirs(tokenizer, row, name)
                if isinstance(wanted, Exception):
                    with pytest.raises(TemplateError):
                        renderer.render_by_template_with_offsets(row)
                    continue
                chosen = name or ("tool_use" if tools else "default")
                _check_all_ways(renderer, row, wanted, chosen)
                rendered += 1
    assert rendered > len(CONVERSATIONS)


def _check_all_ways(renderer: Renderer, row: Conversation, text: str, template: str) -> None:
    """By the template itself, by it with a recipe left behind, and by the recipe."""
    for render in (renderer.render_by_template_with_offsets, renderer.render, renderer.render):
        (rendering,) = render(row)
        assert (rendering.template, rendering.text) == (template, text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_no_template_is_the_default_one_must_be_chosen(layout: str, tmp_path: Path) -> None:
    import transformers

    folder = several(tmp_path / "tokenizer", "smollm2", layout, "default")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"\['rag', 'tool_use'\]"):
        tokenizer.apply_chat_template(turns(1), tokenize=False)
    with pytest.raises(SpecError, match=r"templates are rag, tool_use; choose one with --template"):
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder)))
    assert (
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder), template="rag")).template
        is not None
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_contract_is_kept_by_the_folder_that_it_is_of(name: str | None, folder: Path) -> None:
    made = make_serving_contract(
        load_tokenizer_and_template_of_run(RunSpec(tokenizer=str(folder), template=name))
    )
    assert list(made["templates"]) == ([name] if name else ["default", "tool_use"])
    assert verify(made, folder) == []
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("another")
    is_of_tools = name in (None, "tool_use")
    assert bool(verify(made, folder)) is is_of_tools


def test_a_check_counts_rows_by_template(folder: Path, rows: Path) -> None:
    line = "rows by chat template: default 2, tool_use 3\n"
    report = check(RunSpec(data=(str(rows),), tokenizer=str(folder)))
    assert report.templates == {"default": 2, "tool_use": 3}
    assert report.facts["template"] == "default; of rows with tools tool_use"
    for verbose in (False, True):
        assert line in report_as_text(report, verbose=verbose)
    assert line not in report_as_text(report, quiet=True)
    named = check(RunSpec(data=(str(rows),), tokenizer=str(folder), template="rag"))
    assert (named.templates, named.facts["template"]) == ({"rag": 5}, "rag")
    assert "rows by chat template" not in report_as_text(named, verbose=True)


def test_a_row_of_several_examples_is_one_row(tmp_path: Path) -> None:
    folder = several(tmp_path / "tokenizer", "qwen3", "folder")
    thinking = CONVERSATIONS["reasoning twice"]
    rows = data(
        tmp_path / "rows.jsonl",
        {"messages": thinking},
        {"messages": thinking, "tools": TOOLS},
        {"messages": [{"role": "assistant", "content": "x", "tool_calls": 1}], "tools": TOOLS},
    )
    report = check(RunSpec(data=(str(rows),), tokenizer=str(folder)))
    assert (report.rows, report.rejected) == (3, 1)
    assert report.examples > 2
    assert report.templates == {"default": 1, "tool_use": 1}


def test_views_are_named_where_there_are_several_templates(folder: Path, rows: Path) -> None:
    def named(row: int, tokenizer: Path = folder, template: str | None = None) -> str | None:
        spec = RunSpec(data=(str(rows),), tokenizer=str(tokenizer), template=template)
        return view_row_tokens(spec, row)[0].template

    assert [named(row) for row in range(6)] == [
        "default",
        "tool_use",
        "tool_use",
        "default",
        "tool_use",
        None,
    ]
    assert named(1, template="default") == "default"
    own = folder.parent / "own.jinja"
    shutil.copy(folder / "additional_chat_templates" / "rag.jinja", own)
    assert named(1, template=str(own)) == str(own)
    assert named(1, parts.folder("smollm2")) is None


def test_the_commands(folder: Path, rows: Path) -> None:
    def truetune(*arguments: object) -> subprocess.CompletedProcess[str]:
        settings = {"COLUMNS": "80", "NO_COLOR": "1"}
        return subprocess.run(
            [commands_python(), "-m", "truetune", *map(str, arguments), "-t", folder.name],
            capture_output=True, text=True, encoding="utf-8", cwd=folder.parent,
            env={**os.environ, **settings},
        )  # fmt: skip

    def title(*arguments: object) -> str:
        return truetune("show", *arguments).stdout.splitlines()[0]

    assert title("rows.jsonl:2") == "rows.jsonl:2 (row 1, messages, template tool_use)"
    assert title("rows.jsonl:2", "--template", "rag") == (
        "rows.jsonl:2 (row 1, messages, template rag)"
    )
    assert title("rows.jsonl:6") == "rows.jsonl:6 (row 5, prompt-completion)"
    (example,) = json.loads(truetune("show", "rows.jsonl", "--json").stdout)["examples"]
    assert example["template"] == "default"
    checked = json.loads(truetune("check", "rows.jsonl", "--json").stdout)
    assert checked["templates"] == {"default": 2, "tool_use": 3}
    for command in ("show", "check"):
        wrong = truetune(command, "rows.jsonl", "--template", "tooluse")
        assert (wrong.returncode, wrong.stdout) == (2, "")
        assert wrong.stderr == (
            "truetune: error: --template tooluse: no such file, and no template of tokenizer"
            " (default, rag, tool_use); did you mean tool_use?\n"
        )
