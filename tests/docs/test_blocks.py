"""Every code block of README.md and docs/ is run, read, or held against the command line; see blocks.py."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml
from filelock import FileLock

from tests.docs import figures, reading, running, settings, shown, stage, unrun
from tests.docs.blocks import Block, blocks, inline, pages
from tests.docs.preludes import wanted
from tests.generation import imitated_server
from tests.generation.serving import shared, transformers_serve  # noqa: F401
from truetune.checks.rule_catalogue import all_rules, rule_page

pytest.importorskip("trl")
SERVER = "http://localhost:8000"
TRACE = "Traceback (most recent"
SLOW = re.compile(r"^truetune (run|rehearse|train|sample|evaluate|serve-check|ladder|doctor)\b")
"""Run once, however often it stands on the pages"""


def chains() -> list[list[Block]]:
    """Blocks that are run; those that go on stand behind what they go on from."""
    found: list[list[Block]] = []
    for block in blocks():
        if (
            block.language in figures.RUN
            and block.page not in figures.ELSEWHERE
            and not lacks_module(block)
        ):
            if "continues" in block.note and found and found[-1][-1].page == block.page:
                found[-1].append(block)
            else:
                found.append([block])
    return found


def lacks_module(block: Block) -> bool:
    """Does it need a module that is not installed?"""
    needed = re.search(r"needs=(\w+)", block.note)
    return needed is not None and find_spec(needed[1]) is None


def owners() -> dict[str, str]:
    """The first block of each slow command."""
    found: dict[str, str] = {}
    for block in (
        chain[0] for chain in chains() if len(chain) == 1 and chain[0].language != "python"
    ):
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
def server(tmp_path: Path, transformers_serve: str) -> str:
    """URL of a server of `merged`, and of any other folder beside it by its name."""

    def handle(path: str, body: dict[str, Any], headers: dict[str, str]) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "merged"}]}
        content = json.dumps(
            {**body, "model": str(tmp_path / "here" / str(body.get("model", "merged")))}
        ).encode()
        asked = Request(
            f"{transformers_serve}{path}", content, {"Content-Type": "application/json"}
        )
        try:
            with urlopen(asked, timeout=60) as reply:
                return reply.status, {}, reply.read()
        except OSError as error:
            return getattr(error, "code", 502), {}, getattr(error, "read", lambda: b"")()

    return imitated_server.started(handle)


# Up to half a minute of processor time for a page that trains, rehearses or audits: each such command is a program that
# imports torch and a trainer (6 s) and runs, as a reader's would. A command that stands twice runs once (SLOW).
@pytest.mark.slow
@pytest.mark.parametrize(
    "chain", CHAINS, ids=lambda chain: "+".join([chain[0].id, *(str(b.line) for b in chain[1:])])
)
def test_it_runs(
    chain: list[Block], prepared: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = (
        request.getfixturevalue("server")
        if any(SERVER in block.text for block in chain)
        else SERVER
    )
    folder = Path(shutil.copytree(prepared, tmp_path / "here", symlinks=True))
    if not any("truetune.yaml" in block.text for block in chain):
        (folder / "truetune.yaml").unlink()  # it would be taken up by commands that do not name it
    there = {path.name for path in folder.iterdir()}
    code = ""
    for block, after in zip(chain, [*chain[1:], None], strict=True):
        if block.language == "python":
            code += "\n" * (block.line - 1 - code.count("\n")) + block.text.replace(SERVER, url)
            if after is None or after.language != "python":
                said = run_python(block, code, folder)
                code = ""
        elif reading.is_script(block):
            said = run_script(block, folder, there, url)
        else:
            said = run_lines(block, folder, there, url)
        if output := shown.output(block):
            told(output, output.text, said, block.text, folder)


def run_python(block: Block, code: str, folder: Path) -> str:
    if unrun.reason(re.sub(r"#.*", "", code)):
        return ""
    ran = running.python(code, wanted(code), folder, block.page)
    went_well(ran, {0}, block.id)
    return ran.said


def run_script(block: Block, folder: Path, there: set[str], url: str) -> str:
    if unrun.reason(block.text):
        return ""
    for line in reading.told(block):
        clear(line, folder, there)
    ran = running.script(block.text.replace(SERVER, url), folder)
    went_well(ran, allowed(block), block.id)
    return ran.said


def run_lines(block: Block, folder: Path, there: set[str], url: str) -> str:
    said = []
    lines, below = reading.lines(block), [text for _, text in shown.turns(block)]
    for number, line in enumerate(lines):
        if unrun.reason(line) or OWNERS.get(line, block.id) != block.id:
            continue
        name, line = line, line.replace(SERVER, url)
        arguments = reading.arguments(line)
        if alone := re.fullmatch(r"python (\w+\.py)", line):
            ran = running.python(
                (folder / alone[1]).read_text(encoding="utf-8"), [], folder, alone[1]
            )
        elif arguments is None:
            ran = running.script(line, folder)
        elif arguments[:1] == ["view"]:
            ran = running.served(arguments, folder)
        else:
            clear(line, folder, there)
            ran = running.truetune(
                globbed(unrun.quick(arguments) if block.language == "sh" else arguments, folder),
                folder,
            )
        codes = allowed(block) if number + 1 == len(lines) else {0, 1}
        went_well(ran, codes, f"{block.id} {line}")
        said.append(ran.said)
        if block.language == "console":
            told(block, below[number], ran.said, name, folder)
    return "".join(said)


def told(block: Block, output: str, said: str, command: str, folder: Path) -> None:
    missing = shown.wrong(output, said, command, folder)
    assert missing is None, (
        f"{block.id} is not what is said there:\n{missing}\n\nbut:\n{said[-8000:]}"
    )


def went_well(ran: running.Ran, codes: set[int], what: str) -> None:
    assert ran.code in codes, f"{what}: exit code {ran.code}\n{ran.said[-4000:]}"
    assert TRACE not in ran.said, f"{what}\n{ran.said[-4000:]}"
    assert ran.code != 1 or re.search(
        r"\b[A-Z]{3,4}\d{3}\b|does not fit|could not be measured|the cache differs", ran.said
    ), f"{what}: 1 without a finding\n{ran.said[-4000:]}"


def allowed(block: Block) -> set[int]:
    """Exit codes of its last command."""
    given = re.search(r"exit=(\d+)", block.note)
    return {int(given[1])} if given else {0, 1}


def globbed(arguments: list[str], folder: Path) -> list[str]:
    """As a shell gives them to a program."""
    return [
        name
        for word in arguments
        for name in (
            sorted(path.relative_to(folder).as_posix() for path in folder.glob(word))
            if "*" in word
            else []
        )
        or [word]
    ]


def clear(line: str, folder: Path, there: set[str]) -> None:
    """What a command makes is not there yet; what an earlier command of the block made stays."""
    name = line.split()[1]
    made = re.search(r"\s(?:-o|--out|--output)[ =](\S+)", line)
    target = made[1] if made else {"init": "truetune.yaml", "train": "outputs"}.get(name)
    if name == "init":
        target = next(
            (word for word in line.split()[2:3] if not word.startswith("-")), "truetune.yaml"
        )
    if name in ("init", "train", "merge", "encode", "export") and target in there:
        there.discard(target)
        path = folder / target
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "block", [b for b in blocks() if b.language in figures.READ], ids=lambda b: b.id
)
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
    for rule in all_rules():
        for code in re.findall(r"`(truetune [^`]+)`", rule_page(rule)):
            yield rule.name(), " ".join(code.split()), False
    for hook in yaml.safe_load((stage.ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")):
        yield hook["id"], f"{hook['entry']} train.py", True


def test_every_command_is_one_that_there_is() -> None:
    found = [
        (place, wrong)
        for place, line, whole in commands()
        if (wrong := reading.wrong(line, whole=whole))
    ]
    assert not found, "\n".join(f"{place}: {wrong}" for place, wrong in found)


def test_every_name_of_the_package_is_one_that_there_is() -> None:
    found = [
        (page.name, line, name)
        for page in pages()
        for line, code in inline(page)
        for name in reading.names(code)
    ]
    assert found
    assert not [place for place in found if not reading.resolves(place[2])]


def test_what_is_not_run_is_counted() -> None:
    found: Counter[str] = Counter()
    for block in (block for chain in CHAINS for block in chain):
        found.update(
            reason.pattern for text in figures.texts(block) if (reason := unrun.reason(text))
        )
    assert dict(found) == {reason.pattern: reason.count for reason in unrun.REASONS}


def test_what_is_not_compared_is_counted() -> None:
    found: Counter[str] = Counter()
    for block in (block for block in blocks() if figures.fate(block) == figures.SHOWN):
        reason = shown.reason(block)
        assert reason, (
            f"{block.id}: an output that no block makes; a reason in shown.REASONS is missing"
        )
        found[reason.pattern] += 1
    assert dict(found) == {reason.pattern: reason.count for reason in shown.REASONS}


def test_outputs_stand_below_what_is_run() -> None:
    for block in (block for chain in CHAINS for block in chain if block.language == "console"):
        for line, (_, output) in zip(reading.lines(block), shown.turns(block), strict=True):
            assert not (
                output.strip() and (unrun.reason(line) or OWNERS.get(line, block.id) != block.id)
            ), block.id


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("clean · 3 rows in 9.9 s", False),
        ("...\nclean · 3 rows in 9.9 s", True),
        ("learns 24 of 71\n...", False),
        ("learns 24\nof 71 tokens\n...", True),
        ("learns 25 of 71 tokens\n...", False),
        ("...\nclean · 3 rows in 9.9 s\n...\nlearns 24 of 71 tokens\n...", False),
        ("learns 24 of 71 tokens\nclean · 3 rows in 9.9 s", False),
        ("learns ... tokens\nloss 0.51\nclean · 3 rows in 9.9 s", False),
        ("learns ... tokens\nloss 0.5\nclean · 3 rows in 9.9 s", True),
        ("...\nclean · 3 rows", False),
    ],
)
def test_a_wrong_output_is_seen(output: str, right: bool, tmp_path: Path) -> None:
    said = "\x1b[1mlearns\x1b[0m 24 of 71 tokens\n\nloss 0.5\nclean · 3 rows in 0.2 s\n"
    assert (shown.wrong(output, said, "truetune check", tmp_path) is None) is right


def test_every_language_is_known() -> None:
    known = {*figures.RUN, *figures.READ, "text", "diff", "jinja", "indented"}
    assert {block.language for block in blocks()} <= known
