"""Serves the six tools over the Model Context Protocol on stdin and stdout; needs the extra `truetune[mcp]`.

Stdout carries the protocol alone: the SDK keeps it for itself while it serves, so that a stray print goes to stderr.
Input that can't be read becomes a tool error with the one line that the command line would print. Tools run one at a
time, since the SDK calls each in a thread of its own and the library keeps caches of files and templates that no
lock guards. The trade-off: a long check holds up the next call.

Results are text and no structured output: a client would get each report twice, and the schemas of six results with
the list of tools.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Annotated, Protocol

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BeforeValidator, Field

from truetune.assistants import tools
from truetune.errors import TruetuneError
from truetune.package import __version__
from truetune.trainers.trainer_fact_types import TrainerName

INSTRUCTIONS = (
    "truetune finds bugs in LLM fine-tuning that a loss curve does not show. Call check on the settings, scripts and"
    " rows of a run together, before the run; diagnose on its log; troubleshoot with the symptom in the user's words"
    " when something is wrong. Each finding has a place and a remedy; explain gives the page of its code; fix shows"
    " the edits as a diff. Findings of severity error come first. What is not judged is not fine: do what unlocks it."
)


def _wrap_single_text_in_list(value: object) -> object:
    """A single text as a list of it: assistants often name one path without brackets."""
    return [value] if isinstance(value, str) else value


Paths = Annotated[
    list[str],
    BeforeValidator(_wrap_single_text_in_list),
    Field(
        description="Files or folders of one run, named together: rows, settings, scripts, logs, models."
    ),
]
Tokenizer = Annotated[
    str | None,
    Field(
        description="Folder of the tokenizer or model. Without it, what is learned is not judged."
    ),
]
_ONE_AT_A_TIME = Lock()


class _JsonRecord(Protocol):
    """A result of a tool."""

    def as_json(self) -> str:
        """It as JSON."""
        ...


def make_server() -> MCPServer:
    """Make the server with its six tools. It reads nothing before a tool is called."""
    server = MCPServer(
        "truetune", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    reading = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    writing = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
    for function in (check, lint, diagnose, troubleshoot, explain, fix):
        server.add_tool(
            function,
            annotations=writing if function is fix else reading,
            structured_output=False,
        )
    return server


def serve_over_stdio() -> None:
    """Serve until stdin ends."""
    make_server().run("stdio")


def check(
    paths: Paths,
    tokenizer: Tokenizer = None,
    trainer: Annotated[
        TrainerName | None,
        Field(
            description="Whose trainer reads the rows, if no settings or script among the paths say so."
        ),
    ] = None,
) -> str:
    """Check rows, settings, scripts, logs and checkpoints of a fine-tune. Reads only. Returns brief JSON: verdict,
    counts, findings with place and remedy, and what was not judged."""
    return _call_result_as_json_or_tool_error(lambda: tools.check_files(paths, tokenizer, trainer))


def lint(paths: Paths) -> str:
    """Check Python scripts, notebooks and shell scripts alone for code that spoils training or serving. Reads only.
    Returns brief JSON."""
    return _call_result_as_json_or_tool_error(lambda: tools.lint_files(paths))


def diagnose(
    path: Annotated[str, Field(description="A run's folder, a checkpoint, or a log file.")],
    data: Annotated[
        list[str] | None,
        Field(
            description="Training data of the run, to know what its loss can be; needs tokenizer."
        ),
    ] = None,
    tokenizer: Tokenizer = None,
) -> str:
    """Diagnose the log of a training run: loss, gradients, rates, rewards, how it ended. Reads only. Returns brief
    JSON."""
    return _call_result_as_json_or_tool_error(
        lambda: tools.diagnose_run(path, data or (), tokenizer)
    )


def troubleshoot(
    symptom: Annotated[
        str, Field(description="What is seen, in the user's words, or a pasted error.")
    ],
    paths: Paths,
    tokenizer: Tokenizer = None,
) -> str:
    """Find the cause of a symptom in the files of a run. Reads only. Returns brief JSON whose first findings prove a
    cause of the symptom; causes are left to check by hand."""
    return _call_result_as_json_or_tool_error(
        lambda: tools.troubleshoot_symptom(symptom, paths, tokenizer)
    )


def explain(
    question: Annotated[
        str, Field(description="Name or code of a rule, or any words or error message.")
    ],
) -> str:
    """Give the page of a rule (why it matters, how to fix it), or the rules, messages and guides that fit some words.
    Reads no files."""
    return _call_result_as_json_or_tool_error(lambda: tools.explain_rule_or_words(question))


def fix(
    path: Annotated[
        str, Field(description="A script, a notebook, a folder of them, or one file of rows.")
    ],
    tokenizer: Tokenizer = None,
    write: Annotated[
        bool, Field(description="Make the edits. False shows them as a diff and writes nothing.")
    ] = False,
    output: Annotated[
        str | None,
        Field(description="With write, the new file of rows. Scripts are edited in place."),
    ] = None,
    unsafe: Annotated[
        bool,
        Field(description="Also edits that may change what rows or code mean; ask the user first."),
    ] = False,
) -> str:
    """Show the edits that end findings of scripts or rows as a unified diff; write them only with write=true."""
    return _call_result_as_json_or_tool_error(
        lambda: tools.fix_files(path, tokenizer, write=write, output=output, unsafe=unsafe)
    )


def _call_result_as_json_or_tool_error(call: Callable[[], _JsonRecord]) -> str:
    """The JSON of a call's result. Raises ToolError, with one line, for input that can't be read."""
    try:
        with _ONE_AT_A_TIME:
            return call().as_json()
    except TruetuneError as error:
        raise ToolError(" ".join(str(error).split())) from error
    except OSError as error:
        raise ToolError(f"{error.filename or 'a file'}: {error.strerror}") from error
