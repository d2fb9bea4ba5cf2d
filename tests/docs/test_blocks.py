"""Every code block of README.md and docs/ is run, read, or held against the command line; see blocks.py."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from filelock import FileLock

from tests.docs import figures, reading, running, settings, stage, unrun
from tests.docs.blocks import Block, blocks, inline, pages
from tests.docs.preludes import wanted
from tests.generation import imitation
from tests.generation.serving import shared, transformers_serve  # noqa: F401
from truetune.checks.catalogue import page, rules

pytest.importorskip("trl")
SERVER = "http://localhost:8000"
TRACE = "Traceback (most recent"
SLOW = re.compile(r"^truetune (run|rehearse|train|sample|evaluate|serve-check|ladder|doctor)\b")
"""Run once, however often it stands on the pages"""
SMALL = {
    "train": "--no-rehearsal --set training.max_steps=2 --set watch.max_new_tokens=8 --set watch.prompts=2",
    "rehearse": "--rows 2 --laws none",
    "run": "--batches 2",
    "sample": "--max-new-tokens 16",
    "serve-check": "--longest 300",
}
"""What goes behind a command's name, where it is not given, to make it quick; the line as it is shown is parsed too"""


def chains() -> list[list[Block]]:
    """Blocks that are run; those that go on stand behind what they go on from."""
    found: list[list[Block]] = []
    for block in blocks():
        if block.language in figures.RUN and block.page not in figures.ELSEWHERE:
            if "goes on" in block.note and found and found[-1][-1].page == block.page:
                found[-1].append(block)
            else:
                found.append([block])
    return found


def owners() -> dict[str, str]:
    """The first block of each slow command."""
    found: dict[str, str] = {}
    for block in (chain[0] for chain in chains() if len(chain) == 1 and chain[0].language != "python"):
        for line in filter(SLOW.search, reading.lines(block)):
            found.setdefault(line, block.id)
    return found


CHAINS, OWNERS = chains(), owners()


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The prepared folder, made once for all workers."""
    folder = shared(tmp_path_factory) / "docs" / "prepared"
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.with_name("prepared.lock")):
        if not folder.exists():
            making = folder.with_name("making")
            shutil.rmtree(making, ignore_errors=True)
            stage.build(making)
            making.rename(folder)
    return folder


@pytest.fixture
def server(tmp_path: Path, transformers_serve: str) -> str:  # noqa: F811
    """URL of a server of `merged`, and of any other folder beside it by its name."""

    def handle(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "merged"}]}
        content = json.dumps({**body, "model": str(tmp_path / "here" / str(body.get("model", "merged")))}).encode()
        asked = Request(f"{transformers_serve}{path}", content, {"Content-Type": "application/json"})
        try:
            with urlopen(asked, timeout=60) as reply:
                return reply.status, {}, reply.read()
        except OSError as error:
            return getattr(error, "code", 502), {}, getattr(error, "read", lambda: b"")()

    return imitation.started(handle)


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: "+".join([chain[0].id, *(str(b.line) for b in chain[1:])]))
def test_it_runs(chain: list[Block], prepared: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("server") if any(SERVER in block.text for block in chain) else SERVER
    folder = Path(shutil.copytree(prepared, tmp_path / "here", symlinks=True))
    if not any("truetune.yaml" in block.text for block in chain):
        (folder / "truetune.yaml").unlink()  # it would be taken up by commands that do not name it
    there = {path.name for path in folder.iterdir()}
    code = ""
    for block, after in zip(chain, [*chain[1:], None], strict=True):
        if block.language == "python":
            code += "\n" * (block.line - 1 - code.count("\n")) + block.text.replace(SERVER, url)
            if after is None or after.language != "python":
                run_python(block, code, folder)
                code = ""
        elif reading.is_script(block):
            run_script(block, folder, there, url)
        else:
            run_lines(block, folder, there, url)


def run_python(block: Block, code: str, folder: Path) -> None:
    if not unrun.reason(re.sub(r"#.*", "", code)):
        ran = running.python(code, wanted(code), folder, block.page)
        went_well(ran, {0}, block.id)


def run_script(block: Block, folder: Path, there: set[str], url: str) -> None:
    if not unrun.reason(block.text):
        for line in reading.told(block):
            clear(line, folder, there)
        ran = running.script(block.text.replace(SERVER, url), folder)
        went_well(ran, allowed(block), block.id)


def run_lines(block: Block, folder: Path, there: set[str], url: str) -> None:
    said = []
    lines = reading.lines(block)
    for last, line in zip([False] * (len(lines) - 1) + [True], lines, strict=True):
        if unrun.reason(line) or OWNERS.get(line, block.id) != block.id:
            continue
        line = line.replace(SERVER, url)
        arguments = reading.arguments(line)
        if arguments is None:
            ran = running.script(line, folder)
        elif arguments[:1] == ["view"]:
            ran = running.served(arguments, folder)
        else:
            clear(line, folder, there)
            ran = running.truetune(globbed(quick(arguments) if block.language == "sh" else arguments, folder), folder)
        codes = allowed(block) if last else {0, 1}
        went_well(ran, codes, f"{block.id} {line}")
        said.append(ran.said)
    if block.language == "console":
        missing = unsaid(block, "".join(said))
        assert not missing, f"{block.id} prints no such line: {missing}"


def went_well(ran: running.Ran, codes: set[int], what: str) -> None:
    assert ran.code in codes, f"{what}: exit code {ran.code}\n{ran.said[-4000:]}"
    assert TRACE not in ran.said, f"{what}\n{ran.said[-4000:]}"
    assert ran.code != 1 or re.search(r"\bTT\d{3}\b|does not fit|could not be measured", ran.said), (
        f"{what}: 1 without a finding\n{ran.said[-4000:]}"
    )


def allowed(block: Block) -> set[int]:
    """Exit codes of its last command."""
    given = re.search(r"exit=(\d+)", block.note)
    return {int(given[1])} if given else {0, 1}


def globbed(arguments: list[str], folder: Path) -> list[str]:
    """As a shell gives them to a program."""
    return [name for word in arguments for name in (sorted(
        path.relative_to(folder).as_posix() for path in folder.glob(word)
    ) if "*" in word else []) or [word]]  # fmt: skip


def clear(line: str, folder: Path, there: set[str]) -> None:
    """What a command makes is not there yet; what an earlier command of the block made stays."""
    name = line.split()[1]
    made = re.search(r"\s(?:-o|--out|--output)[ =](\S+)", line)
    target = made[1] if made else {"init": "truetune.yaml", "train": "outputs"}.get(name)
    if name == "init":
        target = next((word for word in line.split()[2:3] if not word.startswith("-")), "truetune.yaml")
    if name in ("init", "train", "merge", "encode", "export") and target in there:
        there.discard(target)
        path = folder / target
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def quick(arguments: list[str]) -> list[str]:
    """The same, with smaller numbers."""
    name, *rest = arguments
    more = reading.words(SMALL.get(name, ""))
    return [name, *(more if not {*rest} & {word for word in more if word.startswith("--")} - {"--set"} else []), *rest]


def unsaid(block: Block, said: str) -> list[str]:
    """Lines of output of a console block that a command did not print."""
    found = running.plain(said)
    shown = [line.strip() for line in block.text.splitlines() if line.strip() and not line.startswith("$ ")]
    return [line for line in shown if not re.search(pattern(line), found)]


def pattern(line: str) -> str:
    """A line of output, with any numbers for its numbers and anything for its dots."""
    parts = re.split(r"(\d[\d,.]*(?:e[+-]?\d+)?|\.\.\.|…)", running.plain(line))
    number = r"\d[\d,.]*(?:e[+-]?\d+)?"
    return "".join(".*?" if p in ("...", "…") else number if p[:1].isdigit() else re.escape(p) for p in parts)


@pytest.mark.parametrize("block", [b for b in blocks() if b.language in figures.READ], ids=lambda b: b.id)
def test_it_is_read(block: Block, tmp_path: Path) -> None:
    if block.language == "yaml":
        settings.read(block.text, tmp_path)
    else:
        for text in [block.text] if block.language == "json" else block.text.splitlines():
            json.loads(text)


def commands() -> Iterator[tuple[str, str, bool]]:
    """(place, command, whether it is a whole one) of all pages, rule pages and hooks."""
    for block in blocks():
        for line in reading.told(block):
            yield block.id, line, True
    for path in pages():
        for line_, code in inline(path):
            if code.startswith("truetune "):
                yield f"{path.name}:{line_}", code, False
    for rule in rules():
        for code in re.findall(r"`(truetune [^`]+)`", page(rule)):
            yield rule.name(), " ".join(code.split()), False
    for hook in yaml.safe_load((stage.ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")):
        yield hook["id"], f"{hook['entry']} train.py", True


def test_every_command_is_one_that_there_is() -> None:
    found = [(place, wrong) for place, line, whole in commands() if (wrong := reading.wrong(line, whole=whole))]
    assert not found, "\n".join(f"{place}: {wrong}" for place, wrong in found)


def test_every_name_of_the_package_is_one_that_there_is() -> None:
    found = [(page.name, line, name) for page in pages() for line, code in inline(page) for name in reading.names(code)]
    assert found
    assert not [place for place in found if not reading.resolves(place[2])]


def test_what_is_not_run_is_counted() -> None:
    found: Counter[str] = Counter()
    for block in (block for chain in CHAINS for block in chain):
        found.update(reason.pattern for text in figures.texts(block) if (reason := unrun.reason(text)))
    assert dict(found) == {reason.pattern: reason.count for reason in unrun.REASONS}


def test_every_language_is_known() -> None:
    known = {*figures.RUN, *figures.READ, "text", "diff", "jinja", "indented"}
    assert {block.language for block in blocks()} <= known
