"""The template process: compiles and renders chat templates, which are untrusted programs, under limits of the kernel.

`template_process` starts it, one for each process of truetune, and talks with it over two pipes: a request is a pickle
(it comes from truetune), a reply is JSON (it comes from a process that ran a template, and is not trusted). It imports
Jinja and the standard library alone, so that it starts in a tenth of a second and is small.

Before the first request it gives up what a template has no need for: it can open no file and no socket, start no
process, and write to nothing but its pipe. Memory is bounded by its address space. Processor time is bounded for each
rendering by a timer whose signal ends the process, also in the middle of C code.

Each conversation is rendered twice: plainly, which is the text, and with provenance. Where the two differ the text
stands and its provenance is unknown. So a defect of the tracing can cost provenance, never an id.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import pickle
import select
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

import jinja2

from truetune.render import traced_string
from truetune.render.template_environment import TemplateEnvironment
from truetune.render.template_protocol import (
    HEADER,
    MAX_CONVERSATION_SECONDS,
    MAX_MEMORY,
    MAX_REPLY,
    MAX_SECONDS,
    MAX_TEXT,
    OUT_OF_MEMORY,
    REASONING_KEYS,
    CompileRequest,
    PrefixRequest,
    RenderRequest,
)
from truetune.render.traced_environment import TracedEnvironment
from truetune.render.traced_string import Node, Trace, Traced

MAX_TRACED_SECONDS = 1.0
"""Processor time for the second rendering. Past it the text stands without provenance. Chosen as MAX_SECONDS: at half,
long rows of slow templates lose their provenance; at double, a row may take that much longer to be refused."""
MAX_TEMPLATES = 64
"""Compiled templates that are kept. Chosen, not measured: a run has two at most, but tests and servers ask for many,
and memory is bounded."""


LATE_IMPORTS = (
    "html",
    "jinja2.constants",
    "jinja2.debug",
    "pprint",
    "random",
    "textwrap",
    "unicodedata",
    "urllib.parse",
    *(
        f"encodings.{name}"
        for name in ("cp437", "cp1252", "gbk", "idna", "iso8859_15", "punycode", "shift_jis")
    ),
)
"""Modules that Jinja and `encode` import where a template first needs them: a filter, an error, a codec."""


class TracingStopped(BaseException):
    """The second rendering took too long. No Exception, so that nothing in Jinja takes it for its own."""


class CompiledTemplate:
    """A template in both environments: compiled twice, for the traced one generates other code."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.environment = TemplateEnvironment()
        self.traced_environment = TracedEnvironment()
        self.plain = self.environment.from_string(source)
        self.traced = self.traced_environment.from_string(source)


class Worker:
    """Answers requests until the pipe closes."""

    def __init__(self) -> None:
        self.templates: dict[int, CompiledTemplate] = {}

    def answer(self, request: CompileRequest | RenderRequest) -> dict[str, Any]:
        """Answer a request: compile or render, as it asks."""
        if isinstance(request, CompileRequest):
            return self.compile(request)
        return self.render(request)

    def compile(self, request: CompileRequest) -> dict[str, Any]:
        # The oldest goes. The parent is told `unknown_template` where it asks for that one again, and sends its source.
        """Compile a template and keep it; the oldest goes where there are too many. The reply says why where
        it is invalid.
        """
        # Compiling takes 5 to 120 ms for a published template, and the files of a project often share one.
        known = self._compiled_from(request.source)
        while len(self.templates) >= MAX_TEMPLATES:
            del self.templates[next(iter(self.templates))]
        if known is not None:
            self.templates[request.template] = known
            return {}
        limit_processor_time(MAX_SECONDS)
        try:
            self.templates[request.template] = CompiledTemplate(request.source)
        except jinja2.TemplateSyntaxError as error:
            return {"invalid": f"line {error.lineno}: {error.message}"}
        except RecursionError:
            return {"invalid": "it is nested too deeply"}
        except (SyntaxError, ValueError, OverflowError) as error:
            # Python's own compiler: too many nested loops, a number of too many digits.
            return {"invalid": f"{type(error).__name__}: {error}"}
        finally:
            limit_processor_time(0)
        return {}

    def _compiled_from(self, source: str) -> CompiledTemplate | None:
        """The kept template of this very source, under any number; None where none is kept."""
        return next((one for one in self.templates.values() if one.source == source), None)

    def render(self, request: RenderRequest) -> dict[str, Any]:
        """Render a conversation as often as the request asks, and reply with the renderings;
        `unknown_template` where that is not kept.
        """
        template = self.templates.get(request.template)
        if template is None:
            return {"unknown_template": True}
        trace = Trace()
        reply = _Reply(trace)
        plain_inputs = {
            "messages": [alias_reasoning(message) for message in request.messages],
            "tools": request.tools,
            "documents": request.documents,
        }
        traced_inputs = _traced_inputs(request, trace)
        started = time.process_time()
        for rendering in request.renderings:
            reply.add(
                rendering,
                _render_plainly_then_with_provenance(
                    template, request, rendering, plain_inputs, traced_inputs, trace
                ),
            )
            if time.process_time() - started > MAX_CONVERSATION_SECONDS:
                return {"too_slow": True}
        return reply.as_dict()


class FailedRendering(NamedTuple):
    """A rendering that raised."""

    message: str


def _traced_inputs(request: RenderRequest, trace: Trace) -> dict[str, Any]:
    """The template's variables, each string in them an atom of `trace`."""
    messages = traced_string.trace_texts_except_structure_keys(
        request.messages, ("messages",), trace
    )
    return {
        "messages": [alias_reasoning(message) for message in messages],
        "tools": traced_string.trace_texts_except_structure_keys(request.tools, ("tools",), trace),
        "documents": traced_string.trace_texts_except_structure_keys(
            request.documents, ("documents",), trace
        ),
    }


def alias_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its reasoning under each known name, as transformers hands it to a template."""
    reasoning = next((message[key] for key in REASONING_KEYS if key in message), None)
    return (
        message
        if reasoning is None
        else {"thinking": reasoning, **message, "reasoning_content": reasoning}
    )


def _render_plainly_then_with_provenance(
    template: CompiledTemplate,
    request: RenderRequest,
    rendering: PrefixRequest,
    plain_inputs: dict[str, Any],
    traced_inputs: dict[str, Any],
    trace: Trace,
) -> str | FailedRendering:
    """The text, a Traced where it is known what it was made of."""
    # One clock for both renderings and all rows, so that a template which writes the time writes it once.
    template.environment.now = template.traced_environment.now = request.now
    limit_processor_time(MAX_SECONDS)
    try:
        text = _run_template_on_first_messages(template.plain, plain_inputs, request, rendering)
        failure = None
    except Exception as error:
        failure = _describe_failure(error)
    finally:
        limit_processor_time(0)
    if failure is None and len(text) > MAX_TEXT:
        return FailedRendering(
            f"the chat template wrote {len(text):,} characters from one conversation (the limit is"
            f" {MAX_TEXT:,})"
        )
    if not rendering.traced:
        # What this one asked of the fields is not known, so that no recipe may be made of the row.
        trace.opaque = True
        return failure or text
    traced_text = _render_with_provenance(template, traced_inputs, request, rendering, trace)
    if failure is not None:
        # That it raises is a fact for recipes too, where the traced one asked its questions up to the same error.
        trace.opaque = trace.opaque or traced_text is not None
        return failure
    if traced_text is None or str.__str__(traced_text) != text:
        return traced_string.text_of_unknown_origin(text, trace)
    return traced_text


def _render_with_provenance(
    template: CompiledTemplate,
    inputs: dict[str, Any],
    request: RenderRequest,
    rendering: PrefixRequest,
    trace: Trace,
) -> str | None:
    """The text with provenance; None where this rendering raised, or lost what its text was made of."""
    environment = template.traced_environment
    environment.start(trace)
    # SIGPROF, which ends the process in the first rendering, only ends this one: its text is there already.
    try:
        signal.signal(signal.SIGPROF, _stop_tracing)
        limit_processor_time(MAX_TRACED_SECONDS)
        text = _run_template_on_first_messages(template.traced, inputs, request, rendering)
    except jinja2.TemplateError:
        return None  # that it raised hangs on questions in the trace
    except (Exception, TracingStopped):
        trace.opaque = True
        return None
    finally:
        limit_processor_time(0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    return None if environment.lost_provenance else text


def _stop_tracing(*_: Any) -> NoReturn:
    """Stop the rendering with provenance: raise TracingStopped. It handles the timer's signal."""
    raise TracingStopped


def _run_template_on_first_messages(
    template: jinja2.Template,
    inputs: dict[str, Any],
    request: RenderRequest,
    rendering: PrefixRequest,
) -> str:
    """Run a template on the first messages that a rendering asks for: its text."""
    variables = {
        **request.variables,
        **inputs,
        "messages": inputs["messages"][: rendering.messages],
        "add_generation_prompt": rendering.generation_prompt,
    }
    # Not `template.render`: it joins the output by its own `"".join`, which would lose the provenance.
    context = template.new_context(variables)
    text: str = template.environment.concat(template.root_render_func(context))
    return text


def _describe_failure(error: Exception) -> FailedRendering:
    """What a user is told of an error of a template. Raises MemoryError, after which the process can't continue."""
    if isinstance(error, RecursionError):
        return FailedRendering("the chat template calls itself without end")
    if isinstance(error, MemoryError):
        raise error  # the process is spent; see `main`
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return FailedRendering(
            "the chat template needs a part of Python that its process may not load (a rare text"
            " encoding, say)"
        )
    kind = "" if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: "
    return FailedRendering(f"the chat template raised: {kind}{error}"[:10_000])


class _Reply:
    """Renderings as JSON. An expression stands once, in `nodes`; what a rendering shares with the first is counted."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.nodes: list[Any] = []
        self.numbers: dict[Node, int] = {}
        self.renderings: list[dict[str, Any]] = []
        self.first: tuple[str | Traced, ...] | None = None
        self.first_text = ""

    def add(self, rendering: PrefixRequest, text: str | FailedRendering) -> None:
        """Add a rendering to the reply, without what it shares with the first."""
        if isinstance(text, FailedRendering):
            self.renderings.append({"error": text.message})
            return
        if not rendering.traced:
            shared = count_shared_characters(text, self.first_text)
            self.renderings.append({"shared_characters": shared, "rest": text[shared:]})
            return
        parts = traced_string.literal_and_field_parts(text)
        if self.first is None:
            self.first = parts
            self.first_text = str.__str__(text)
            shared = 0
        else:
            shared = count_shared_parts(self.first, parts)
        self.renderings.append(
            {"shared_parts": shared, "parts": [self._part_as_json(part) for part in parts[shared:]]}
        )

    def _part_as_json(self, part: str | Traced) -> Any:
        """One part of a rendering for the reply: its text, or for a field the number of its node, its text and
        segments.
        """
        if not isinstance(part, Traced):
            return part
        return [self._number_of_node(part.node), part.plain, part.segments]

    def _number_of_node(self, node: Node) -> int:
        """The number of a node in the reply, which is added with its parents where it is new."""
        if node not in self.numbers:
            operation, parent, *arguments = node
            entry = [
                operation,
                parent if operation == "leaf" else self._number_of_node(parent),
                *arguments,
            ]
            self.numbers[node] = len(self.nodes)
            self.nodes.append(entry)
        return self.numbers[node]

    def as_dict(self) -> dict[str, Any]:
        # Of an opaque trace the answers are of no use to anyone, and there may be very many.
        """The reply as a dict for JSON: renderings, nodes, and the answers of a trace that is not opaque."""
        answers: list[Any] = []
        if not self.trace.opaque:
            answers = [
                [self._number_of_node(node), question, arguments, answer]
                for (node, question, arguments), answer in self.trace.answers.items()
            ]
        return {
            "renderings": self.renderings,
            "nodes": self.nodes,
            "answers": answers,
            "opaque": self.trace.opaque,
        }


def count_shared_parts(first: tuple[str | Traced, ...], parts: tuple[str | Traced, ...]) -> int:
    """How many parts two renderings of one conversation begin with alike."""
    for index, (one, other) in enumerate(zip(first, parts, strict=False)):
        if isinstance(one, Traced) != isinstance(other, Traced) or str.__ne__(one, other):
            return index
        if isinstance(one, Traced) and isinstance(other, Traced) and one.node != other.node:
            return index
    return min(len(first), len(parts))


def count_shared_characters(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    # The usual case: a prompt is a beginning of the whole.
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:  # halving keeps the comparison in C
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def limit_processor_time(seconds: float) -> None:
    """Arm the timers whose signals end the process; 0 disarms them.

    The second one stands behind the first for renderings with provenance, whose SIGPROF Python handles: it can't do so
    in the middle of C code.
    """
    # No timers there: the page ends its worker itself, after the time that it gives it.
    if sys.platform == "emscripten":
        return
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)


def import_lazy_modules_of_jinja() -> None:
    """Load what Jinja imports where a template first needs it, while files can still be opened."""
    # Code paths that import or open something on their first use are taken once: an error message with its line, the
    # time zone of `strftime`. After `give_up_rights` they would fail, for one row or another.
    for name in LATE_IMPORTS:
        importlib.import_module(name)
    with contextlib.suppress(jinja2.TemplateSyntaxError):
        TemplateEnvironment().from_string("{% for %}")
    with contextlib.suppress(jinja2.TemplateError, ZeroDivisionError):
        CompiledTemplate("{{ 'a' | pprint }}{{ strftime_now('%c') }}{{ 1 // 0 }}").plain.render()


def give_up_rights() -> None:
    """Give up the rights of this process: bound its memory, and let it open, start and write nothing more."""
    import resource  # a browser has no such module, and needs the rest of this one

    for limit, value in (
        (resource.RLIMIT_AS, MAX_MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (
            resource.RLIMIT_NOFILE,
            0,
        ),  # no new descriptor: no file, no socket; those that are open stay
    ):
        # A lower limit that somebody has set can't be raised again; to ask for it would be an error.
        hard = resource.getrlimit(limit)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        # Hard limits, too: the soft ones a template that reached Python could raise again.
        resource.setrlimit(limit, (value, value))


def main() -> None:
    """Read requests from standard input and write replies to standard output until the input ends."""
    requests, replies = io.FileIO(0, "rb", closefd=False), io.FileIO(1, "wb", closefd=False)
    parent = os.getppid()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C is for the parent, which ends this process
    import_lazy_modules_of_jinja()
    give_up_rights()
    worker = Worker()
    while (message := _read_message(requests, parent)) is not None:
        try:
            reply = _encode_reply(worker.answer(pickle.loads(message)))
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        _write_all(replies, HEADER.pack(len(reply)) + reply)


def _encode_reply(reply: dict[str, Any]) -> bytes:
    """Encode a reply as JSON bytes; one that is too large becomes a word on its size."""
    data = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )
    if len(data) > MAX_REPLY:
        return _encode_reply({"too_large": len(data)})
    return data


def _read_message(requests: io.FileIO, parent: int) -> bytes | None:
    """The next message; None where there is none any more, or nobody who could send one."""
    # A parent that was killed closes its pipe, unless a child that it forked holds it open: so look for it each second.
    while not select.select([requests], [], [], 1.0)[0]:
        if os.getppid() != parent:
            return None
    header = _read_exactly_or_none_at_end(requests, HEADER.size)
    return (
        None if header is None else _read_exactly_or_none_at_end(requests, HEADER.unpack(header)[0])
    )


def _read_exactly_or_none_at_end(requests: io.FileIO, count: int) -> bytes | None:
    """Read exactly so many bytes; None where the input ends before."""
    chunks: list[bytes] = []
    while count:
        chunk = requests.read(min(count, 1 << 20))
        if not chunk:
            return None
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _write_all(replies: io.FileIO, data: bytes) -> None:
    """Write all of the data, however little a write takes."""
    view = memoryview(data)
    while view:
        view = view[replies.write(view) :]


if __name__ == "__main__":
    main()
