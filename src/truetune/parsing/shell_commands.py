"""Reads the commands of a shell script, a job, a unit of systemd or a Dockerfile as words, and the
resources that a job asks the scheduler for.

Nothing is run or expanded but variables that the file sets once to plain text. What a word holds beyond that keeps its
`$`, and nobody may take it for a value. Commands inside of here-documents are text for another program.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from truetune.errors import DataError
from truetune.parsing.container_command_on_host import CONTAINER_PROGRAMS, command_words_on_host
from truetune.parsing.docker_compose_services_as_commands import (
    is_compose_file,
    services_as_docker_run,
)
from truetune.parsing.input_limits import RESULT, SETTINGS, InputLimitError
from truetune.parsing.kubernetes_containers_as_commands import (
    containers_as_docker_run,
    is_manifest_with_containers,
)
from truetune.parsing.lm_eval_results_as_command import (
    TEMPLATE_HASH_KEY,
    TEMPLATE_KEY,
    TEMPLATE_NOT_RECORDED,
    command_words_of_results,
    is_lm_eval_or_lighteval_results,
)
from truetune.parsing.makefile_recipes_as_shell_lines import is_makefile, recipes_as_shell_lines
from truetune.parsing.parse_json_within_limits import parse_json
from truetune.parsing.read_files_within_limits import read_bytes_within_limit
from truetune.parsing.shell_arrays import (
    ARRAY_WORD,
    arrays_with_known_words,
    begins_unclosed_array,
    sets_array,
)

MAX_ARRAY_LINES = 200
"""Lines of one array. Behind that a parenthesis that never closes is taken for a slip"""
MAX_ARRAY_CHARACTERS = 20_000
"""The same of characters, since each line reads those before it again"""
MAX_LINE_CHARACTERS = 131_072
"""Longer lines hold data, not commands: Linux gives no program an argument of more bytes (MAX_ARG_STRLEN).
shlex takes 0.5 s for a word of this length, and four times as long for one of twice the length"""
MAX_KEPT_FILES = 16
"""Texts whose commands are kept. Some twenty rules read those of one file; more files are open in one check only where
a folder has them, and are read again"""
SCRIPT_SUFFIXES = frozenset((".sh", ".bash", ".zsh", ".slurm", ".sbatch"))
VARIABLES_SUFFIX = ".env"
"""Of a file whose lines set variables for a job or a container"""
UNIT_SUFFIX = ".service"
"""Of a unit of systemd: `Environment=` sets variables, `ExecStart=` is the command"""
UNIT_VARIABLE = re.compile(r"Environment=")
UNIT_COMMAND = re.compile(r"Exec(?:Start|StartPre|StartPost)=[-@:+!]*")
DOCKERFILE_NAMES = frozenset(("Dockerfile", "Containerfile"))
PUNCTUATION = frozenset("();&|")
ENDS_A_COMMAND = frozenset((";", "&&", "||", "|", "&", "(", ")", ";;", "|&"))
# One value on a line of its own; `A=1 B=2 python x` sets variables for a command alone.
ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(\S*|\"[^\"]*\"|'[^']*')\s*(?:#.*)?")
SETS_A_VARIABLE = re.compile(
    r"(?:^|[\s;&|({])([A-Za-z_]\w*)=|\bread\s+(?:-\w+\s+)*([A-Za-z_]\w*)|\$\{(\w+):="
)
"""Anything that sets a variable: `X=1`, `read X`, `${X:=1}`"""
BLOCK_BEGIN = re.compile(r"(?:if|case|for|while|until|select)\b")
BLOCK_END = re.compile(r"(?:fi|esac|done)\b")
"""Lines that begin and end what is run under a condition, or several times"""
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
QUOTED_OR_VARIABLE = re.compile(
    r"""'[^']*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z)|(?<!\S)[A-Za-z_]\w*=\$\{?\w+\}?|"""
    + VARIABLE.pattern
)
"""A text in quotes or a variable that is assigned, each one word whatever it holds; or a variable anywhere else.

A quote that never closes goes to the end: tried again from each of its quotes, a long line of them took minutes."""
OPEN_BODY = re.compile(r"(?:^|[\s=])'\s*[{\[][^']*\Z")
"""A quote that begins like JSON and that nothing closes: `curl -d '{`"""
HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
HASH_WITHIN_WORD = re.compile(r"(?<=[^\s;&|()<>])#")
# Of the private use area: no script has it.
STANDS_FOR_HASH = "\ue000"
# Slurm reads these comments; other schedulers are not read.
SBATCH_REQUEST = re.compile(r"#SBATCH\s+(--[\w-]+|-[A-Za-z])[=\s]*(\S+)?")
DOCKER_INSTRUCTION = re.compile(r"(?:RUN|CMD|ENTRYPOINT)\s+(?:--\S+\s+)*", re.I)
DOCKER_IMAGE = re.compile(r"FROM\s+(?:--\S+\s+)?(\S+)", re.I)


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a file."""

    words: tuple[str, ...]
    """Without quotes, and without the assignments before them; of a container as they would stand on the host"""
    line: int
    """1-based, where it begins"""
    text: str
    variables: Mapping[str, str] = field(default_factory=dict)
    """What is set for it alone: `CUDA_VISIBLE_DEVICES=0 python train.py`"""
    option_lines: Mapping[str, int] = field(default_factory=dict)
    """Options that stand on another line than the one where it begins"""

    def line_of(self, text: str) -> int:
        """The line of the option that a text begins with (`--max-num-seqs 1`); else that where the command begins."""
        option = text.partition(" ")[0].partition("=")[0]
        return self.option_lines.get(option, self.line)

    def words_following(self, *words: str) -> tuple[str, ...] | None:
        """The words that follow these words, which must be adjacent; of the first one, only the
        file name counts. None if the command does not hold them.
        """
        first, rest = words[0], words[1:]
        for begin, word in enumerate(self.words):
            # By the file name: `/opt/venv/bin/python -m vllm` is `python -m vllm`.
            if not word.endswith(first) or word.rpartition("/")[2] != first:
                continue
            end = begin + len(words)
            if self.words[begin + 1 : end] == rest:
                return self.words[end:]
        return None


@dataclass(frozen=True, slots=True)
class CommandFile:
    """A file of commands."""

    path: str
    text: str
    commands: tuple[ShellCommand, ...]
    requests: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Option of the job as the file spells it (`--gres`) -> value, line"""
    image: str = ""
    """What a Dockerfile is made from, last"""
    saved_from: Mapping[str, str] = field(default_factory=dict)
    """Folder that a notebook saves its model to -> the name of the model that it began with"""


def is_command_file(path: Path) -> bool:
    """Does a file hold commands, by its name, or record the command of an evaluation (lm_eval,
    lighteval)?
    """
    by_name = (
        path.suffix in SCRIPT_SUFFIXES
        or path.name in DOCKERFILE_NAMES
        or path.name.startswith("Dockerfile.")
        or path.suffix in (VARIABLES_SUFFIX, UNIT_SUFFIX)
        or is_makefile(path)
    )
    return by_name or is_compose_file_or_manifest(path) or is_lm_eval_or_lighteval_results(path)


def is_compose_file_or_manifest(path: Path) -> bool:
    """Is it a compose file, or a manifest of Kubernetes? Its commands are those that would start its containers."""
    return is_compose_file(path) or is_manifest_with_containers(path)


def docker_run_words(command: ShellCommand) -> tuple[str, ...]:
    """The words of `docker run ...`, without `sudo`; empty where a command starts no container."""
    words = command.words[1:] if command.words[0] == "sudo" else command.words
    is_run = words[:1] and words[0].rpartition("/")[2] in CONTAINER_PROGRAMS and "run" in words[1:3]
    return words if is_run else ()


def options_before_script(options: tuple[str, ...]) -> tuple[str, ...]:
    """A launcher's own options: those before the script, whose options may have the same names."""
    script = next((n for n, word in enumerate(options) if word.endswith(".py")), len(options))
    return options[:script]


def last_option(words: tuple[str, ...], *names: str) -> str | None:
    """The value of the last option of these names (dashes and underscores are the same).

    Returns "" for an option without a value, None where none is given.
    """
    wanted = {name.replace("_", "-") for name in names}
    result: str | None = None
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") not in wanted:
            continue
        if equals:
            result = value
            continue
        following = words[number + 1] if number + 1 < len(words) else ""
        # The next word is an option of its own; a value that begins with a dash needs the equals
        # sign.
        result = "" if following.startswith("-") else following
    return result


def parse_digits(value: str | None) -> int | None:
    """The number that an option's value is; None for variables and other words."""
    return int(value) if value is not None and value.isdecimal() else None


def read_command_file(path: Path) -> CommandFile:
    """The commands of a file: a script, a compose file, a manifest, or results of lm_eval. Raises
    DataError if it can't be read as text.
    """
    if is_lm_eval_or_lighteval_results(path):
        return _command_of_evaluation_results(path)
    if is_compose_file_or_manifest(path):
        shell_commands = [
            ShellCommand(
                command_words_on_host(one.words),
                one.line,
                shlex.join(one.words),
                option_lines=one.option_lines,
            )
            for one in (
                services_as_docker_run(path)
                if is_compose_file(path)
                else containers_as_docker_run(path)
            )
        ]
        return CommandFile(
            str(path), "\n".join(one.text for one in shell_commands), tuple(shell_commands)
        )
    try:
        text = read_bytes_within_limit(path, SETTINGS).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, InputLimitError) as error:
        raise DataError(f"{path}: {error}") from None
    if path.suffix == UNIT_SUFFIX:
        text = "\n".join(_systemd_unit_as_shell_lines(text))
    if is_makefile(path):
        # Rules on the lines of a Makefile itself need it as it stands.
        commands = parse_command_file("\n".join(recipes_as_shell_lines(text)), str(path))
        return replace(commands, text=text)
    return parse_command_file(text, str(path))


def _systemd_unit_as_shell_lines(text: str) -> Iterator[str]:
    """The lines of a systemd unit as shell lines (`export`, commands), as many as there are."""
    continues = False
    for line in text.splitlines():
        variable, command = UNIT_VARIABLE.match(line), UNIT_COMMAND.match(line)
        if continues:
            yield line
        elif variable is not None:
            yield f"export {line[variable.end() :].strip()}"
        else:
            yield line[command.end() :] if command is not None else ""
        continues = line.endswith("\\") and (continues or command is not None)


def _command_of_evaluation_results(path: Path) -> CommandFile:
    """The command that made an evaluation's results, at the line that names its chat template.
    Raises DataError.
    """
    words = command_words_of_results(path)
    text = shlex.join(word for word in words if word != TEMPLATE_NOT_RECORDED)
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    # The finding points to the line that says whether a template was used.
    keys = (f'"{TEMPLATE_KEY}"', f'"{TEMPLATE_HASH_KEY}"')
    line = next((n for n, one in enumerate(lines, 1) if any(key in one for key in keys)), 1)
    command = ShellCommand(words, line, text)
    return CommandFile(str(path), text, (command,) if words else ())


@lru_cache(maxsize=MAX_KEPT_FILES)
def parse_command_file(text: str, path: str) -> CommandFile:
    """The commands of the text of a script or Dockerfile; kept for the rules that ask for the same text."""
    lines = list(_logical_lines(text))
    variables = _variables_of_plain_text(lines)
    arrays = arrays_with_known_words(line for _, line in lines)
    if not _is_dockerfile(path):
        commands = tuple(
            command
            for number, line in lines
            if not sets_array(line)
            for command in _commands_of_line(line, number, variables, arrays)
        )
        return CommandFile(path, text, commands, _slurm_requests(text))
    matches = [DOCKER_IMAGE.match(line) for _, line in lines]
    # The last FROM is the image that runs; those before it only build.
    images = [match[1] for match in matches if match is not None]
    return CommandFile(
        path, text, tuple(_commands_of_dockerfile(lines)), image=images[-1] if images else ""
    )


def _is_dockerfile(path: str) -> bool:
    """Does the name say that it is a Dockerfile?"""
    name = Path(path).name
    return name in DOCKERFILE_NAMES or name.startswith("Dockerfile.")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered lines, with those joined that continue; comments and here-documents are left out."""
    whole, begin, ends_with = "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        # Inside a here-document: a script for another program, up to the word that ends it.
        if ends_with:
            ends_with = "" if line.strip() == ends_with else ends_with
            continue
        if _is_comment_or_empty(line, is_continued=bool(whole)):
            continue
        begin = begin or number
        # A line that continues: one command over several lines is one command.
        if line.endswith("\\"):
            whole += line[:-1] + " "
            continue
        whole += line
        lines = number - begin
        if _ends_inside_array(whole, lines) or _ends_inside_quoted_json(whole, lines):
            whole += "\n"
            continue
        if whole.strip():
            yield begin, whole.strip()
        ends_with = _word_that_ends_here_document(whole)
        whole, begin = "", 0
    if whole.strip():
        yield begin, whole.strip()


def _is_comment_or_empty(line: str, *, is_continued: bool) -> bool:
    """Is it a line to leave out: a comment, or an empty line where no command is continued?"""
    if line.lstrip().startswith("#"):
        return True
    # Before the searches of what continues a command: a file may hold a hundred thousand empty lines.
    return not is_continued and not line.strip()


def _word_that_ends_here_document(command: str) -> str:
    """The word that ends the here-document which follows a command; empty where none does."""
    here = HERE_DOCUMENT.search(command)
    return here[2] if here else ""


def _ends_inside_array(text: str, lines: int) -> bool:
    """Is an array still open at the end of this text, which has so many lines?"""
    is_short = lines < MAX_ARRAY_LINES and len(text) < MAX_ARRAY_CHARACTERS
    return is_short and begins_unclosed_array(text)


def _ends_inside_quoted_json(text: str, lines: int) -> bool:
    """Is a quoted JSON object still open at the end of this text, as in the body of a request?"""
    is_short = lines < MAX_ARRAY_LINES and len(text) < MAX_ARRAY_CHARACTERS
    return is_short and OPEN_BODY.search(text) is not None


def variables_set_once_unconditionally(text: str) -> dict[str, str]:
    """The variables that a script sets just once, under no condition, on a line of its own: name ->
    value, not expanded.
    """
    return _variables_set_once_in_lines(list(_logical_lines(text)))


def _variables_set_once_in_lines(lines: list[tuple[int, str]]) -> dict[str, str]:
    """The variables that numbered lines set just once, under no condition. A value under an `if`
    may be that of another machine.
    """
    # Everything that sets a name counts, also in a loop or by `read`: twice set means that nobody
    # knows the value here.
    counts = Counter(
        name for _, line in lines for names in SETS_A_VARIABLE.findall(line) for name in names
    )
    values: dict[str, str] = {}
    depth = 0
    for _, line in lines:
        # Lines, not a parser: a block that opens and closes on one line counts as neither.
        depth += BLOCK_BEGIN.match(line) is not None
        match = ASSIGNMENT.fullmatch(line)
        if match is not None and not depth and counts[match[1]] <= 1:
            values[match[1]] = match[2].strip("\"'")
        if BLOCK_END.search(line):
            depth = max(0, depth - 1)
    return values


def _variables_of_plain_text(lines: list[tuple[int, str]]) -> dict[str, str]:
    """The variables set once to plain text, also by other such variables (`RUN=runs/$NAME`), with
    those expanded.
    """
    known: dict[str, str] = {}
    # In the order of the file: what is set later has no value yet.
    for name, value in _variables_set_once_in_lines(lines).items():
        plain = _expand_known_variables(value, known)
        if not set(plain) & set("$`("):
            known[name] = plain
    return known


def _commands_of_line(
    line: str,
    number: int,
    variables: Mapping[str, str],
    arrays: Mapping[str, list[str]],
) -> Iterator[ShellCommand]:
    """The commands of a line; none where its quotes do not close on it, or it is too long for commands."""
    # With punctuation_chars, `a;b` and `a&&b` are three words.
    split = _split_unquoted_variables(line, variables)
    if len(split) > MAX_LINE_CHARACTERS:
        return
    # shlex begins a comment at any `#`, a shell at the begin of a word alone: `--dataset rows#5000`.
    guarded = HASH_WITHIN_WORD.sub(STANDS_FOR_HASH, split)
    lexer = shlex.shlex(guarded, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    try:
        words = [word.replace(STANDS_FOR_HASH, "#") for word in lexer]
    except ValueError:
        return
    yield from _commands_and_substitutions(words, number, variables, arrays)


def _commands_and_substitutions(
    words: list[str],
    number: int,
    variables: Mapping[str, str],
    arrays: Mapping[str, list[str]],
) -> Iterator[ShellCommand]:
    """The commands that words make, and the commands in their `$(...)`."""
    words, substituted = _join_command_substitutions(_without_stream_redirects(words))
    part: list[str] = []
    # The semicolon ends the last command like all others.
    for word in (*words, ";"):
        if word not in ENDS_A_COMMAND:
            array = ARRAY_WORD.fullmatch(word)
            known = arrays.get(array[1], [word]) if array else [word]
            part += [_expand_known_variables(one, variables) for one in known]
            continue
        command = _command_with_own_variables(part, number)
        if command is not None:
            yield command
        part = []
    for inner in substituted:
        yield from _commands_and_substitutions(inner, number, variables, arrays)


def _split_unquoted_variables(line: str, variables: Mapping[str, str]) -> str:
    """The line with each unquoted variable replaced by the several words of its value: `$LAUNCH
    train.py`.
    """

    def words_of(found: re.Match[str]) -> str:
        words = variables.get(found[1] or found[2] or "", "").split()
        return " ".join(map(shlex.quote, words)) if len(words) > 1 else found[0]

    return QUOTED_OR_VARIABLE.sub(words_of, line)


def _without_stream_redirects(words: list[str]) -> list[str]:
    """The words without `2>&1`, which the lexer gives as three words, and which is no argument."""
    kept: list[str] = []
    number = 0
    while number < len(words):
        is_joined = words[number] == ">&" and words[number + 1 : number + 2] in (
            ["1"],
            ["2"],
            ["-"],
        )
        if is_joined and kept and kept[-1] in ("1", "2"):
            kept.pop()
        if not is_joined:
            kept.append(words[number])
        number += 1 + is_joined
    return kept


def _join_command_substitutions(words: list[str]) -> tuple[list[str], list[list[str]]]:
    """The words with each `$(...)` joined to one word, and the words inside of each, for the
    commands inside end no other command.
    """
    joined: list[str] = []
    substituted: list[list[str]] = []
    inner: list[str] = []
    depth = 0
    for word in words:
        is_opened = joined and joined[-1].endswith("$") and word.startswith("(")
        if not depth and not is_opened:
            joined.append(word)
            continue
        # Signs that stand together are one word: `));`.
        parts = list(word) if set(word) <= PUNCTUATION else [word]
        for number, part in enumerate(parts):
            depth += (part == "(") - (part == ")")
            inner.append(part)
            if depth:
                continue
            joined[-1] += "".join(("(", " ".join(inner[1:-1]), ")"))
            substituted.append(inner[1:-1])
            inner = []
            rest = "".join(parts[number + 1 :])
            joined += [rest] if rest else []
            break
    # One that never closes is taken as it stands.
    return (words, []) if depth else (joined, substituted)


def _expand_known_variables(word: str, variables: Mapping[str, str]) -> str:
    """A word with the variables that are known replaced by their values; the others keep their `$`."""
    return VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), word)


def _command_with_own_variables(words: list[str], number: int) -> ShellCommand | None:
    """One command, with the variables set for it alone taken off its front; None if nothing is
    left.
    """
    own: dict[str, str] = {}
    # `X=1 python train.py`: set for this command alone.
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words[0].partition("=")
        own[name], words = value, words[1:]
    if not words:
        return None
    return ShellCommand(command_words_on_host(words), number, shlex.join(words), own)


def _commands_of_dockerfile(lines: list[tuple[int, str]]) -> Iterator[ShellCommand]:
    """The commands of RUN, ENTRYPOINT and CMD; an ENTRYPOINT takes the CMD after it as its
    arguments.
    """
    entry: ShellCommand | None = None
    for number, line in lines:
        match = DOCKER_INSTRUCTION.match(line)
        if match is None:
            continue
        rest = line[match.end() :]
        commands = _command_of_docker_exec_form(rest, number) or list(
            _commands_of_line(rest, number, {}, {})
        )
        kind = match[0].split()[0].upper()
        if kind == "ENTRYPOINT" and len(commands) == 1:
            entry = commands[0]
        # Docker appends CMD to ENTRYPOINT in the exec form alone.
        elif kind == "CMD" and entry is not None and rest.startswith("["):
            words = (*entry.words, *(word for command in commands for word in command.words))
            entry = ShellCommand(words, entry.line, shlex.join(words))
        else:
            yield from commands
    if entry is not None:
        yield entry


def _command_of_docker_exec_form(text: str, number: int) -> list[ShellCommand]:
    """The command of Docker's exec form, `["vllm", "serve"]`; empty for any other text."""
    if not text.startswith("["):
        return []
    try:
        words = parse_json(text.encode(), RESULT)
    except ValueError:
        return []
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return []
    return [ShellCommand(tuple(words), number, shlex.join(words))]


def _slurm_requests(text: str) -> dict[str, tuple[str, int]]:
    """The resources that `#SBATCH` lines ask for: option -> (value, line)."""
    requests: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = SBATCH_REQUEST.match(line.strip())
        if match is not None:
            requests[match[1]] = (match[2] or "", number)
    return requests
