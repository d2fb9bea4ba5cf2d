"""The language server, asked by the client of pygls over stdio, with files on the disk."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

pytest.importorskip("pygls", reason="needs the extra truetune[lsp]")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from tests.preloaded import commands_python
from truetune.demo import BROKEN, TOKENIZER
from truetune.editors.language_server import MAX_PLACES

SCRIPT = """from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer

tokenizer = AutoTokenizer.from_pretrained("meta-llama/Llama-3.1-8B")
name = "🫠"; tokenizer.pad_token = tokenizer.eos_token
collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
Trainer(model="m", data_collator=collator).train()
"""
RULE = "pad-equals-eos-lm-collator"
SERVER = ("-m", "truetune", "lsp")
"""What follows `python`"""
SLOW_SERVER = (
    "-c",
    "import time, truetune\n"
    "from truetune.editors.language_server import serve_over_stdio\n"
    "def check_slowly(path):\n"
    "    print('a stray print')\n"
    "    time.sleep(3)\n"
    "    return truetune.check(path)\n"
    "serve_over_stdio(check_slowly)",
)
CHANGING_SERVER = (
    "-c",
    "import truetune\n"
    "from pathlib import Path\n"
    "from truetune.editors.language_server import serve_over_stdio\n"
    "def check_while_another_writes(path):\n"
    "    Path(path).write_bytes(b'# one more line\\n' + Path(path).read_bytes())\n"
    "    return truetune.check(path)\n"
    "serve_over_stdio(check_while_another_writes)",
)
TIMEOUT_S = 60


class Editor(LanguageClient):
    """An editor: it opens and saves files, and keeps what it is shown."""

    def __init__(self) -> None:
        super().__init__("test-editor", "0")
        self.published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        self.log: asyncio.Queue[str] = asyncio.Queue()
        self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(
            lambda params: self.published.put_nowait(params)
        )
        self.feature(types.WINDOW_LOG_MESSAGE)(lambda params: self.log.put_nowait(params.message))

    def open(self, path: Path) -> None:
        # Editors have a text without its byte order mark.
        text = path.read_bytes().decode("utf-8-sig")
        item = types.TextDocumentItem(path.as_uri(), "any", 1, text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def type_whole_text(self, path: Path, text: str) -> None:
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(2, path.as_uri()),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def save(self, path: Path) -> None:
        identifier = types.TextDocumentIdentifier(path.as_uri())
        self.text_document_did_save(types.DidSaveTextDocumentParams(identifier))

    def close(self, path: Path) -> None:
        identifier = types.TextDocumentIdentifier(path.as_uri())
        self.text_document_did_close(types.DidCloseTextDocumentParams(identifier))

    async def next_diagnostics(self) -> list[types.Diagnostic]:
        return list((await asyncio.wait_for(self.published.get(), TIMEOUT_S)).diagnostics)

    async def next_log_line(self) -> str:
        return await asyncio.wait_for(self.log.get(), TIMEOUT_S)

    async def fixes_at(
        self, path: Path, line: int, last_line: int | None = None
    ) -> list[types.CodeAction]:
        last_line = line if last_line is None else last_line
        where = types.Range(types.Position(line, 0), types.Position(last_line, 0))
        actions = await self.text_document_code_action_async(
            types.CodeActionParams(
                types.TextDocumentIdentifier(path.as_uri()), where, types.CodeActionContext([])
            )
        )
        return [action for action in actions or () if isinstance(action, types.CodeAction)]


def in_editor(
    arguments: tuple[str, ...],
    folder: Path,
    work: Callable[[Editor], Awaitable[None]],
    python: str | None = None,
) -> None:
    """Start a server in a folder, do the work with it, and end it as editors do.

    Args:
        arguments: What follows `python`.
        folder: Where it works.
        work: What is asked of it.
        python: By default one that has imported truetune's modules already.
    """

    async def session() -> None:
        editor = Editor()
        await editor.start_io(python or commands_python(), *arguments, cwd=folder)
        capabilities = types.ClientCapabilities()
        await editor.initialize_async(
            types.InitializeParams(capabilities, root_uri=folder.as_uri())
        )
        editor.initialized(types.InitializedParams())
        await work(editor)
        await editor.shutdown_async(None)
        editor.exit(None)
        await asyncio.wait_for(editor.stop(), TIMEOUT_S)

    asyncio.run(session())


def apply(action: types.CodeAction, text: str) -> str:
    """A text after the edits of an action, whose positions are in UTF-16 code units."""
    assert action.edit is not None
    assert action.edit.changes is not None
    (edits,) = action.edit.changes.values()
    lines = text.splitlines(keepends=True)
    before = [0]
    for line in lines:
        before.append(before[-1] + len(line.encode("utf-16-le")))
    units = text.encode("utf-16-le")
    for edit in sorted(edits, key=lambda one: before[one.range.start.line], reverse=True):
        start = before[edit.range.start.line] + 2 * edit.range.start.character
        end = before[edit.range.end.line] + 2 * edit.range.end.character
        units = units[:start] + edit.new_text.encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_script_is_opened_fixed_and_saved(tmp_path: Path, line_end: str) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(SCRIPT.replace("\n", line_end).encode())

    async def work(editor: Editor) -> None:
        editor.open(script)
        found, collator = await editor.next_diagnostics()
        assert (found.code, found.source) == (RULE, "truetune")
        assert (collator.code, collator.range.start.line) == (RULE, 4)
        assert found.severity == types.DiagnosticSeverity.Error
        # Behind an emoji, which is two code units of UTF-16.
        assert (found.range.start.line, found.range.start.character) == (3, 13)
        assert found.range.end.character == len(SCRIPT.splitlines()[3]) + 1

        assert await editor.fixes_at(script, 0) == []
        (action,) = await editor.fixes_at(script, 3)
        (of_all_lines,) = await editor.fixes_at(script, 0, last_line=6)
        assert of_all_lines.edit == action.edit
        assert action.kind == types.CodeActionKind.QuickFix
        fixed = apply(action, script.read_bytes().decode())
        assert fixed != script.read_bytes().decode()
        assert fixed.count("\r") == script.read_bytes().count(b"\r")

        editor.type_whole_text(script, fixed)
        assert await editor.fixes_at(script, 3) == []
        script.write_bytes(fixed.encode())
        editor.save(script)
        assert RULE not in [one.code for one in await editor.next_diagnostics()]

    # As editors start it: with all of its imports.
    in_editor(SERVER, tmp_path, work, python=sys.executable)


def test_rows_that_can_not_be_read_and_other_files(tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": [\n')
    package = tmp_path / "package.json"
    package.write_text('{"name": "a"}\n')
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "one row"}\n')

    async def work(editor: Editor) -> None:
        editor.open(broken)
        (unreadable,) = await editor.next_diagnostics()
        assert unreadable.severity == types.DiagnosticSeverity.Error
        assert unreadable.range.start.line == 0
        assert "not JSON" in unreadable.message

        editor.open(package)
        assert await editor.next_diagnostics() == []
        assert "package.json: found the keys name" in await editor.next_log_line()

        editor.open(rows)
        assert await editor.next_diagnostics() == []
        assert "rows.jsonl: not judged: " in await editor.next_log_line()

        rows.unlink()
        editor.save(rows)
        assert await editor.next_diagnostics() == []
        assert "No such file" in await editor.next_log_line()

        editor.close(broken)
        assert await editor.next_diagnostics() == []

    in_editor(SERVER, tmp_path, work)


def test_rows_are_judged_with_the_tokenizer_of_the_command(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(BROKEN.read_bytes())

    async def work(editor: Editor) -> None:
        editor.open(rows)
        found = await editor.next_diagnostics()
        # A rule that renders rows, which takes a tokenizer.
        assert "tool-arguments-double-encoded" in [one.code for one in found]
        lines = {one.range.start.line for one in found}
        assert len(lines) > 1

    in_editor((*SERVER, "-t", str(TOKENIZER)), tmp_path, work)


def test_a_slow_check_holds_up_nothing(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    async def work(editor: Editor) -> None:
        editor.open(script)
        started = time.monotonic()
        assert await editor.fixes_at(script, 3) == []
        assert time.monotonic() - started < 2
        # Saved twice during the check: of the three checks only the last one is shown.
        editor.save(script)
        editor.save(script)
        found = await editor.next_diagnostics()
        assert [one.code for one in found] == [RULE, RULE]
        assert editor.published.empty()

    in_editor(SLOW_SERVER, tmp_path, work)


def test_a_byte_order_mark_moves_no_edit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(SCRIPT.encode("utf-8-sig"))

    async def work(editor: Editor) -> None:
        editor.open(script)
        await editor.next_diagnostics()
        (action,) = await editor.fixes_at(script, 3)
        fixed = apply(action, SCRIPT).splitlines()
        assert fixed[3].startswith('name = "🫠"; tokenizer.pad_token = ')
        assert "tokenizer.eos_token" not in fixed[3]

    in_editor(SERVER, tmp_path, work)


def test_a_file_that_changes_during_its_check_is_not_judged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    async def work(editor: Editor) -> None:
        editor.open(script)
        assert await editor.next_diagnostics() == []
        assert "changed while it was checked" in await editor.next_log_line()
        assert await editor.fixes_at(script, 3) == []

    in_editor(CHANGING_SERVER, tmp_path, work)


def test_a_file_of_a_megabyte_is_shown_at_its_first_places(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = '{"messages":[{"role":"user","content":"hi there"},{"role":"assistant","content":""}]}\n'
    rows.write_text(row * 13_000)

    async def work(editor: Editor) -> None:
        editor.open(rows)
        codes = Counter(one.code for one in await editor.next_diagnostics())
        assert codes == {"answer-is-empty": MAX_PLACES, "duplicate-rows": MAX_PLACES}

    in_editor((*SERVER, "-t", str(TOKENIZER)), tmp_path, work)
