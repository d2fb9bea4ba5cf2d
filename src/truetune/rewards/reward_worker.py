"""The process that runs a user's reward function: loads it, calls it as TRL does, and says what it did meanwhile.

`reward_process` starts it confined and talks with it over two pipes, a JSON object a line. It imports the standard
library alone, so that it runs in the user's environment and starts at once. Nothing that the function prints reaches
the pipes.

- A call that takes too long is ended by `faulthandler`, whose watchdog needs no lock of Python's: a regular expression
  that backtracks is ended too, and the line that was executed is known.
- What the function opens, connects to and starts is noted by an audit hook while it scores. Imports are left out.
- A function that takes `solution_str` is one of verl's (`compute_score(data_source, solution_str, ground_truth,
  extra_info)`): it is called for each completion by itself, as verl's reward manager does (naive.py), and one that
  takes `solution_strs` for all at once (batch.py). What it takes is told in the words of the rows' columns.
- A training script is not executed: of a file that trains or loads models where it is imported, only imports,
  functions, classes and plain constants are. The trade-off: a function that needs the script's other values fails.
"""

from __future__ import annotations

import ast
import dis
import faulthandler
import functools
import importlib
import importlib.util
import inspect
import json
import math
import os
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

FORBIDDEN_IN_IMPORT = ("train", "from_pretrained", "load_dataset", "get_peft_model", "LLM")
"""Calls that make a file a script which is not to be executed: they train, load or download"""
ADDRESS_SPACE_BYTES = 16 << 30
"""Chosen, not measured: torch alone reserves some GB that it never touches; a text needs none of it."""
MAX_NAMED_TEXTS, MAX_TEXT_CHARACTERS, MAX_DEPTH = 400, 500, 4
"""Strings of the function's code that are reported: their number, their length, and how many calls deep"""
MAX_ACCESSES = 50
"""Chosen, not measured: a function that opens a file for each completion does it a thousand times."""
MAX_MESSAGE = 300
"""Characters of an error or a path that are reported"""
ARGUMENTS_OF_VERL = {
    "solution_str": "completions",
    "data_source": "data_source",
    "ground_truth": "ground_truth",
    "extra_info": "extra_info",
}
"""What verl calls an argument for one completion -> the column, or `completions`; for all at once it adds an `s`"""
GIVEN_BY_VERL: dict[str, Any] = {"num_turns": None, "rollout_reward_scores": {}}
"""What verl adds to the `extra_info` of a row, as it is for answers of one turn"""
STANDARD_LIBRARY = os.path.dirname(os.__file__)
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND
NETWORK_EVENTS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto")
PROCESS_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")
WRITE_EVENTS = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "shutil.rmtree",
    "shutil.copyfile",
)


class _AccessWatch:
    """Notes what the process does outside of itself while the user's function scores."""

    def __init__(self, path: str) -> None:
        # Opened once, and before anything is watched: the notes would note themselves.
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open as long as the process
        self.folders: tuple[str, ...] = ()
        self.is_on = False
        self.noted: set[tuple[str, str]] = set()
        sys.addaudithook(self.note)

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note an event where it is one of the kinds that are reported."""
        if not self.is_on or len(self.noted) >= MAX_ACCESSES:
            return
        access = _access_of_event(event, arguments)
        if access is None or access in self.noted:
            return
        self.is_on = False
        try:
            frames = list(_frames_from(sys._getframe(1)))
            if not any(_is_of_import(frame) for frame in frames):
                self.noted.add(access)
                line = _innermost_line(frames, self.folders)
                kind, subject = access
                note = {"kind": kind, "subject": subject[:MAX_MESSAGE], "line": line}
                self.file.write(json.dumps(note) + "\n")
                self.file.flush()
        finally:
            self.is_on = True


def _access_of_event(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """(kind, subject) of an audit event; None for one that is not reported."""
    if event == "open":
        return _access_of_opened_file(arguments)
    if event in NETWORK_EVENTS:
        return _network_access(event, arguments)
    if event in PROCESS_EVENTS:
        return "starts a process", _text_of_command(arguments)
    if event in WRITE_EVENTS and isinstance(arguments[0], str | bytes | os.PathLike):
        return "writes", os.fsdecode(arguments[0])
    return None


def _access_of_opened_file(arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """The access of an event that opens a file; None for a file that is not the user's, and for one without a name."""
    path, mode, flags = (*arguments, None, None, None)[:3]
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    name = os.fsdecode(path)
    # Packages read their own data, and every process reads the devices.
    if name.startswith(("/dev/", "/proc/", "/sys/", sys.prefix, sys.base_prefix)):
        return None
    has_writing_mode = any(letter in str(mode or "") for letter in "wax+")
    has_writing_flag = isinstance(flags, int) and bool(flags & WRITE_FLAGS)
    return ("writes" if has_writing_mode or has_writing_flag else "reads"), name


def _network_access(event: str, arguments: tuple[Any, ...]) -> tuple[str, str] | None:
    """The access of an event of a socket; None for sockets that are files."""
    address = arguments[1] if event in ("socket.connect", "socket.sendto") else arguments[0]
    if isinstance(address, tuple):
        return "network", ":".join(str(part) for part in address[:2])
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        return "network", str(address)
    return None


def _text_of_command(arguments: tuple[Any, ...]) -> str:
    """The command of an event that starts a process."""
    command = arguments[1] if len(arguments) > 1 and arguments[1] else arguments[0]
    if isinstance(command, list | tuple):
        return " ".join(str(part) for part in command)
    return str(command)


def _frames_from(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """A frame and those that called it, the innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_of_import(frame: types.FrameType) -> bool:
    """Is this a frame of the import system, or of one that reads source lines for a traceback?"""
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or name.endswith(("linecache.py", "tokenize.py"))


def _innermost_line(frames: Sequence[types.FrameType], folders: Sequence[str]) -> str:
    """`rewards.py:12`: the innermost line of the user's files; empty where there is none."""
    for frame in frames:
        path = os.path.abspath(frame.f_code.co_filename)
        if _is_users(path, folders):
            return f"{os.path.basename(path)}:{frame.f_lineno}"
    return ""


def _is_users(path: str, folders: Sequence[str]) -> bool:
    """Is a file one of the user's, and no installed package?"""
    if "site-packages" in path or path.startswith((STANDARD_LIBRARY, "<")) or path == __file__:
        return False
    return path.startswith(tuple(folders))


class _Function:
    """The user's function, and what is known of it."""

    def __init__(self, source: str, name: str, folder: str, folders: tuple[str, ...]) -> None:
        self.folders = folders
        self.notes: list[str] = []
        module = self._import(source, folder)
        self.function = _function_by_name(module, source, name)
        parameters = inspect.signature(self.function).parameters.values()
        self.takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
        self.parameters = [
            one.name for one in parameters if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        ]
        self.optional = [one.name for one in parameters if one.default is not one.empty]
        self.taken = frozenset(self.parameters)
        """The names of its arguments as it writes them"""
        self.ending_of_verl = next(
            (end for end in ("", "s") if f"solution_str{end}" in self.taken), None
        )
        """`s` for a function of verl that takes all completions at once; None for one that is called as TRL does"""
        self.is_of_openrlhf = "queries" in self.taken and "completions" not in self.taken
        """Does it take prompt and answer as one text, as OpenRLHF calls it?"""
        self.unused = _unread_arguments(self.function)
        if self.ending_of_verl is not None:
            self._tell_arguments_of_verl_as_columns(self.ending_of_verl)
        elif self.is_of_openrlhf:
            self._tell_queries_as_completions()

    def _tell_queries_as_completions(self) -> None:
        """Give the argument of OpenRLHF for the completions the name that TRL has for it."""
        self.parameters = ["completions" if name == "queries" else name for name in self.parameters]
        self.notes.append("called as OpenRLHF does: with prompt and answer as one text (queries)")

    def _tell_arguments_of_verl_as_columns(self, ending: str) -> None:
        """Give the arguments of verl the names that rows and TRL have for them; others are left to their defaults."""
        known = {f"{name}{ending}": column for name, column in ARGUMENTS_OF_VERL.items()}
        self.unused = [known.get(name, name) for name in self.unused]
        own = [name for name in self.parameters if name not in known and name not in self.optional]
        self.parameters = [known[name] for name in self.parameters if name in known] + own
        # verl gives an empty one where the rows have none, and nothing besides these.
        self.optional = [
            *(
                known[name]
                for name in self.optional
                if name in known and known[name] != "completions"
            ),
            "extra_info",
        ]
        self.takes_any = False
        how = "all completions at once" if ending else "each completion by itself"
        self.notes.append(f"called as verl does: with {how}, as text (solution_str{ending})")

    def _import(self, source: str, folder: str) -> types.ModuleType:
        """Import a module by its name, or a file. Raises what it raises."""
        sys.path[:0] = [folder, os.getcwd()]
        if not source.endswith(".py"):
            return importlib.import_module(source)
        path = os.path.abspath(source)
        # As the file itself imports others, and as pickles name it.
        name = os.path.splitext(os.path.basename(path))[0]
        with open(path, encoding="utf-8") as file:
            text = file.read()
        tree = ast.parse(text, path)
        call = _forbidden_call(tree)
        if call:
            self.notes.append(
                f"{source} calls {call} where it is imported: only its imports, functions and constants were executed"
            )
            tree.body = [statement for statement in tree.body if _is_definition(statement)]
        module = types.ModuleType(name)
        module.__file__ = path
        sys.modules.setdefault(name, module)
        exec(compile(tree, path, "exec"), module.__dict__)
        return module

    def call(self, arguments: dict[str, Any]) -> Any:
        """Call it with the arguments of TRL, without those that it can't take; a function of verl as verl does."""
        if self.ending_of_verl is not None:
            return self._call_as_verl(arguments)
        if self.is_of_openrlhf:
            return self._call_as_openrlhf(arguments)
        handed_over = {
            name: value
            for name, value in arguments.items()
            if self.takes_any or name in self.parameters
        }
        return _result_awaited(self.function(**handed_over))

    def _call_as_openrlhf(self, arguments: dict[str, Any]) -> Any:
        """The scores by a function of OpenRLHF, which gives a tensor, or an object with `rewards`."""
        prompts = [_text_of_prompt(one) for one in arguments["prompts"]]
        completions = [_text_of_completion(one) for one in arguments["completions"]]
        handed_over = {
            name: value for name, value in arguments.items() if self.takes_any or name in self.taken
        }
        handed_over.pop("completions", None)
        handed_over["queries"] = [
            prompt + completion for prompt, completion in zip(prompts, completions, strict=True)
        ]
        if "prompts" in self.taken or self.takes_any:
            handed_over["prompts"] = prompts
        result = _result_awaited(self.function(**handed_over))
        result = result["rewards"] if isinstance(result, dict) and "rewards" in result else result
        # One column for each answer is as good as none.
        return result.flatten() if hasattr(result, "flatten") else result

    def _call_as_verl(self, arguments: dict[str, Any]) -> list[Any]:
        """The scores of completions by a function of verl, which gives a number or an object with a `score`."""
        columns = _columns_of_verl(arguments)
        if self.ending_of_verl:
            by_plural = {f"{name}s": values for name, values in columns.items()}
            handed_over = {name: values for name, values in by_plural.items() if name in self.taken}
            results = list(_result_awaited(self.function(**handed_over)))
        else:
            names = [name for name in columns if name in self.taken]
            results = [
                _result_awaited(self.function(**{name: columns[name][number] for name in names}))
                for number in range(len(arguments["completions"]))
            ]
        return [result["score"] if isinstance(result, dict) else result for result in results]


def _function_by_name(module: types.ModuleType, source: str, name: str) -> Callable[..., Any]:
    """The function of a module, `correct` or `Rewards.correct`. Raises LookupError where there is none."""
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise LookupError(_no_such_function(module, source, part))
        value = getattr(value, part)
    if inspect.isclass(value) or not callable(value):
        raise LookupError(f"{source}: {name} is a {type(value).__name__} and no function")
    function: Callable[..., Any] = value
    return function


def _columns_of_verl(arguments: dict[str, Any]) -> dict[str, list[Any]]:
    """The arguments of TRL's form by the names under which verl gives them, one value for each completion."""
    texts = [_text_of_completion(one) for one in arguments["completions"]]
    empty = [None] * len(texts)
    infos = arguments.get("extra_info") or empty
    return {
        "solution_str": texts,
        "data_source": arguments.get("data_source") or empty,
        "ground_truth": arguments.get("ground_truth") or empty,
        "extra_info": [{**(info or {}), **GIVEN_BY_VERL} for info in infos],
    }


def _result_awaited(result: Any) -> Any:
    """A result, once it is there, of an asynchronous function."""
    if not inspect.isawaitable(result):
        return result
    # Half of this process's start, and few functions need it.
    import asyncio

    return asyncio.run(_awaited(result))


async def _awaited(value: Any) -> Any:
    """The result of an asynchronous function."""
    return await value


def _text_of_completion(completion: Any) -> str:
    """The text of a completion: of messages the content of the last one."""
    return completion if isinstance(completion, str) else str(completion[-1]["content"])


def _text_of_prompt(prompt: Any) -> str:
    """The text of a prompt: of messages their contents, one below the other."""
    if isinstance(prompt, str):
        return prompt
    return "".join(f"{one['content']}\n" for one in prompt)


def _unread_arguments(function: Any) -> list[str]:
    """The arguments that a function never reads, by its code; empty where that can't be told.

    `**` stands for all further ones, where it takes them and never reads them.
    """
    code = getattr(_innermost_function(function), "__code__", None)
    if code is None or {"locals", "vars"} & set(code.co_names):
        return []
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    read = set(code.co_cellvars)
    for instruction in dis.get_instructions(code):
        if not instruction.opname.startswith("STORE"):
            # Newer Pythons load two names with one instruction.
            value = instruction.argval
            read |= set(value) if isinstance(value, tuple) else {value}
    unread = [name for name in names if name not in read]
    if code.co_flags & inspect.CO_VARKEYWORDS:
        takes_positional = bool(code.co_flags & inspect.CO_VARARGS)
        further = code.co_varnames[len(names) + takes_positional]
        unread += [] if further in read else ["**"]
    return unread


def _no_such_function(module: types.ModuleType, source: str, name: str) -> str:
    """What to say where a module has no such function: which ones take completions."""
    functions = [
        one.__name__
        for one in vars(module).values()
        if inspect.isfunction(one) and "completions" in inspect.signature(one).parameters
    ]
    listed = ", ".join(functions) or "none"
    return f"{source} has no {name}; functions in it that take completions: {listed}"


def _forbidden_call(tree: ast.Module) -> str:
    """The first call at the top of a file that trains, loads or downloads; empty where there is none."""
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.If) and "__name__" in ast.dump(statement.test):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in FORBIDDEN_IN_IMPORT:
                    return str(name)
    return ""


def _is_definition(statement: ast.stmt) -> bool:
    """Is it an import, a definition, or a constant: literals, and patterns that are compiled?"""
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        calls = [node for node in ast.walk(statement.value) if isinstance(node, ast.Call)]
        return all(getattr(call.func, "attr", "") in ("compile", "escape") for call in calls)
    return isinstance(
        statement,
        ast.Import
        | ast.ImportFrom
        | ast.FunctionDef
        | ast.AsyncFunctionDef
        | ast.ClassDef
        | ast.Try,
    )


def _texts_named_by(function: Any) -> list[str]:
    """The strings in the code of a function, of what it calls in the user's module, and of the constants they name."""
    named = _NamedTexts()
    named.add(_innermost_function(function), 0)
    return list(named.texts)


class _NamedTexts:
    """Collects the strings within values: those of containers, patterns, code and functions."""

    def __init__(self) -> None:
        self.texts: dict[str, None] = {}
        """In the order in which they were met"""
        self._visited: set[int] = set()

    def add(self, value: Any, depth: int) -> None:
        """Add the strings of a value, which was reached over so many functions."""
        is_full = len(self.texts) >= MAX_NAMED_TEXTS
        if is_full or depth > MAX_DEPTH or id(value) in self._visited:
            return
        if isinstance(value, str):
            self.texts.setdefault(value[:MAX_TEXT_CHARACTERS])
            return
        self._visited.add(id(value))
        for part in _values_within(value):
            self.add(part, depth)
        if inspect.isfunction(value):
            for name in (*value.__code__.co_names, *_names_of_inner_code(value.__code__)):
                self.add(value.__globals__.get(name), depth + 1)


def _values_within(value: Any) -> Sequence[Any]:
    """The values that a value is made of: of a function its code and the values of its closure."""
    if isinstance(value, re.Pattern):
        return (value.pattern,)
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)[:MAX_NAMED_TEXTS]
    if isinstance(value, dict):
        return (*value, *value.values())
    if isinstance(value, types.CodeType):
        return value.co_consts[:MAX_NAMED_TEXTS]
    if inspect.isfunction(value):
        cells = [cell for cell in value.__closure__ or () if _is_filled(cell)]
        return (value.__code__, *(cell.cell_contents for cell in cells))
    return ()


def _makes_reward_functions(function: Any) -> bool:
    """Does a function define another one that takes completions, as one does that gives a reward function?"""
    code = getattr(_innermost_function(function), "__code__", None)
    if code is None:
        return False
    inner = (one for one in code.co_consts if isinstance(one, types.CodeType))
    return any(
        {"completions", "completion_ids"} & set(one.co_varnames[: one.co_argcount]) for one in inner
    )


def _is_filled(cell: types.CellType) -> bool:
    """Has a cell of a closure a value yet?"""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _names_of_inner_code(code: types.CodeType) -> Iterator[str]:
    """Names that comprehensions and inner functions of a code use."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from constant.co_names
            yield from _names_of_inner_code(constant)


def _innermost_function(value: Any) -> Any:
    """The function with the code: of a partial, a decorated function, or an object that can be called."""
    if isinstance(value, functools.partial):
        return _innermost_function(value.func)
    value = inspect.unwrap(value)
    if inspect.ismethod(value):
        return value.__func__
    # Every type has a `__call__`; that of a function is no Python code.
    return value if inspect.isfunction(value) else type(value).__call__


def _scores_of_result(result: Any, count: int) -> tuple[list[float | str | None], str]:
    """(scores, problem): what TRL would make of a result; not finite ones as text. The problem is empty where it is
    one score for each completion.
    """
    if result is None or isinstance(result, str | bytes | dict):
        return [], "None" if result is None else f"a {type(result).__name__}"
    try:
        items = list(result)
    except TypeError:
        return [], f"one {type(result).__name__}, and no list"
    if len(items) != count:
        return [], f"{len(items)} score{'s' * (len(items) != 1)} for {count} completions"
    scores: list[float | str | None] = []
    for item in items:
        if item is None:
            scores.append(None)
            continue
        try:
            if isinstance(item, str | bytes):
                raise TypeError
            number = float(item)
        except (TypeError, ValueError):
            return [], f"a score that is a {type(item).__name__}"
        scores.append(number if math.isfinite(number) else str(number))
    return scores, ""


class _SwallowedErrors:
    """Notes exceptions that pass the user's own lines, by the tracing of Python, which makes a call slow."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = folders
        self.noted: dict[str, None] = {}

    def trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """The tracing function: looks into the user's frames alone."""
        if not _is_users(os.path.abspath(frame.f_code.co_filename), self.folders):
            return None
        if event == "exception" and not issubclass(
            argument[0], StopIteration | GeneratorExit | StopAsyncIteration
        ):
            text = f"{_describe_error(argument[1])} ({_innermost_line([frame], self.folders)})"
            self.noted.setdefault(text)
        return self.trace


def _describe_error(error: BaseException) -> str:
    """`KeyError: 'content'`, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:MAX_MESSAGE]


def _line_of_error(error: BaseException, folders: Sequence[str]) -> str:
    """The innermost line of the user's files that an exception passed."""
    line, traceback = "", error.__traceback__
    while traceback is not None:
        path = os.path.abspath(traceback.tb_frame.f_code.co_filename)
        if _is_users(path, folders):
            line = f"{os.path.basename(path)}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return line


class _TrainerState:
    """Stands for the trainer's state, which TRL hands to reward functions: the first step of a run."""

    global_step = 0
    max_steps = 100
    epoch = 0.0
    num_train_epochs = 1
    log_history: tuple[Any, ...] = ()
    is_world_process_zero = True


class _Worker:
    """Answers requests until the pipe closes."""

    def __init__(self, work: str) -> None:
        self.watch = _AccessWatch(os.path.join(work, "accesses.jsonl"))
        self.hang_file = open(os.path.join(work, "hang"), "w", encoding="utf-8")  # noqa: SIM115 - as above
        self.function: _Function | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Load the function, or call it, as the request asks."""
        faulthandler.dump_traceback_later(request["seconds"], exit=True, file=self.hang_file)
        try:
            return self.load(request) if "source" in request else self.call(request)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Import the function; gives its parameters and the strings that it names."""
        folder = request["folder"]
        self.watch.folders = (folder, os.getcwd())
        try:
            self.function = _Function(
                request["source"], request["name"], folder, self.watch.folders
            )
        except LookupError as error:
            return {"missing": str(error.args[0])}
        except BaseException as error:
            return {
                "failed": _describe_error(error),
                "line": _line_of_error(error, self.watch.folders),
            }
        return {
            "parameters": self.function.parameters,
            "optional": self.function.optional,
            "takes_any": self.function.takes_any,
            "unused": self.function.unused,
            "is_of_openrlhf": self.function.is_of_openrlhf,
            "texts": _texts_named_by(self.function.function),
            "is_of_verl": self.function.ending_of_verl is not None,
            "makes_functions": _makes_reward_functions(self.function.function),
            "notes": self.function.notes,
        }

    def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Score completions; an exception is a part of the reply."""
        assert self.function is not None
        arguments = {
            **request["arguments"],
            "trainer_state": _TrainerState(),
            "log_extra": lambda *_: None,
            "log_metric": lambda *_: None,
        }
        swallowed = _SwallowedErrors(self.watch.folders)
        if request["traced"]:
            sys.settrace(swallowed.trace)
        self.watch.is_on = True
        try:
            result = self.function.call(arguments)
            scores, problem = _scores_of_result(result, len(arguments["completions"]))
        except BaseException as error:
            self.watch.is_on = False
            line = _line_of_error(error, self.watch.folders)
            return {"raised": _describe_error(error), "line": line}
        finally:
            self.watch.is_on = False
            sys.settrace(None)
        return {"scores": scores, "problem": problem, "swallowed": list(swallowed.noted)}


def _limit_memory() -> None:
    """Bound the address space, where the system can."""
    try:
        import resource
    except ImportError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = (
        ADDRESS_SPACE_BYTES if hard == resource.RLIM_INFINITY else min(hard, ADDRESS_SPACE_BYTES)
    )
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(work: str) -> None:
    """Read requests from standard input, one a line, and write replies."""
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_RDWR)
    # What the function prints belongs to nobody here, and what it reads from a terminal is empty. Errors stay: where
    # this process ends, they say why.
    for number in (0, 1):
        os.dup2(null, number)
    _limit_memory()
    worker = _Worker(work)
    for line in requests:
        reply = worker.answer(json.loads(line))
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    # The folder of this file is first on the path by Python's rule: its modules are not for users to import.
    sys.path.pop(0)
    main(sys.argv[1])
