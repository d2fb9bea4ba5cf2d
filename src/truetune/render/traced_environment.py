"""The environment that renders a chat template with provenance: opaque unless proved.

A rendering with provenance is exact by comparison (the template process renders each conversation plainly as well), but
its *trace* is used for other rows: a recipe fills their texts without the template, as long as they answer the
questions in the trace alike. A question that the trace does not hold would give another row's text. So nothing that a
template can do with a field goes past this file:

- the code generator sends each operator, comparison, `in`, subscript, slice, filter, test and call to a method here;
- what is listed in STRUCTURAL_FILTERS, STRUCTURAL_TESTS and TRACED_METHODS keeps the trace whole: it looks at shapes
  (lengths of lists, keys of mappings, types), which all rows of a recipe share, or asks its questions through `Traced`;
- everything else is an *untraced operation*: given anything but plain values it makes the trace opaque, and the
  recipe is not made. So does every construct of Jinja that ALLOWED_NODES does not name.

The trade-off: an operation that is merely not listed here costs its template the fast path, never its text.

To keep the recipe of templates that use one more method of str:

1. Give the method to `Traced`: add its name to MAPPINGS if it gives one character for each of its own, to QUESTIONS if
   its result is no text, else write it, with `_derive` for a text that is made in one step.
2. Add its name to TRACED_METHODS, unless MAPPINGS or QUESTIONS has it.
3. Add the name of its node to `reusable_render_recipe.OPERATIONS`.

A filter of Jinja that calls such a method needs its name in STRUCTURAL_FILTERS, and in TEXT_FILTERS if it would take
`str(value)` of what is no text. One that goes through a regular expression or C code copies the characters: replace it
in `own_filters`. `tests/render/test_traced_environment.py` has a template for each operation that keeps its recipe, and
`tests/render/test_recipe.py` holds that a recipe can evaluate whatever `Traced` writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import BuiltinMethodType, MethodType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import Context, LoopContext, Macro, Undefined

from truetune.render import traced_string
from truetune.render.template_environment import (
    GenerationTag,
    TemplateDict,
    TemplateEnvironment,
    TemplateNamespace,
    raise_exception,
)
from truetune.render.traced_json import traced_tojson
from truetune.render.traced_string import Trace, Traced

SCALARS = frozenset((str, int, float, bool, type(None)))
"""By exact type: a `Traced` is a str, too"""
ALLOWED_NODES: tuple[type[nodes.Node], ...] = (
    nodes.Template,
    nodes.Output,
    nodes.TemplateData,
    nodes.If,
    nodes.For,
    nodes.Break,
    nodes.Continue,
    nodes.Assign,
    nodes.AssignBlock,
    nodes.Macro,
    nodes.CallBlock,
    nodes.FilterBlock,
    nodes.With,
    nodes.Name,
    nodes.NSRef,
    nodes.Const,
    nodes.Tuple,
    nodes.List,
    nodes.Dict,
    nodes.Pair,
    nodes.Keyword,
    nodes.Filter,
    nodes.Test,
    nodes.Call,
    nodes.Getattr,
    nodes.Getitem,
    nodes.Slice,
    nodes.Compare,
    nodes.Operand,
    nodes.And,
    nodes.Or,
    nodes.Not,
    nodes.CondExpr,
    nodes.Concat,
    nodes.BinExpr,
    nodes.UnaryExpr,
    nodes.ExtensionAttribute,
)
"""Constructs whose compiled code goes through this environment. `autoescape`, for one, is not among them: it calls C
code that copies a field without its provenance."""

TRACED_METHODS = frozenset(
    (
        "strip",
        "lstrip",
        "rstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "join",
        "split",
        "rsplit",
        "splitlines",
        "partition",
        "rpartition",
        *(
            name
            for name in (*traced_string.QUESTIONS, *traced_string.MAPPINGS)
            if not name.startswith("_")
        ),
    )
)
"""Methods of a field that `Traced` implements for plain arguments."""
STRUCTURAL_METHODS: dict[type, frozenset[str]] = {
    dict: frozenset(("get", "items", "keys", "values", "copy")),
    list: frozenset(("copy",)),
    LoopContext: frozenset(("cycle",)),
}
"""Methods that look at keys, lengths and positions alone, given plain arguments."""
STRUCTURAL_FILTERS = frozenset(
    (
        "string",
        "length",
        "count",
        "default",
        "d",
        "tojson",
        "join",
        "first",
        "last",
        "list",
        "reverse",
        "items",
        "map",
        "select",
        "reject",
        "selectattr",
        "rejectattr",
        "trim",
        "upper",
        "lower",
        "capitalize",
        "replace",
        "safe",
    )
)
"""Filters that ask fields nothing, or ask through `Traced` and through this environment's own tests and filters."""
TEXT_ARGUMENT_FILTERS = frozenset(("join", "default", "d"))
"""Structural filters whose arguments may be fields themselves."""
TEXT_FILTERS = frozenset(("trim", "upper", "lower", "capitalize", "replace"))
"""Structural filters that call a method of a text. Of anything else they would take `str(value)`, untraced."""
ELEMENT_FILTERS = frozenset(
    ("sort", "unique", "batch", "slice", "groupby", "dictsort", "min", "max", "random", "sum")
)
"""Untraced filters whose results hold the very values that they were given."""
STRUCTURAL_TESTS = frozenset(
    (
        "boolean",
        "callable",
        "defined",
        "undefined",
        "false",
        "true",
        "none",
        "integer",
        "float",
        "number",
        "mapping",
    )
    + ("string", "sequence", "iterable", "escaped", "lower", "upper")
)
"""Tests of types, and tests that ask through `Traced`."""
COMPARISONS: dict[str, str] = {
    **{"eq": "eq", "==": "eq", "equalto": "eq", "ne": "ne", "!=": "ne", "in": "in"},
    **{"lt": "lt", "<": "lt", "lessthan": "lt", "le": "lteq", "<=": "lteq"},
    **{"gt": "gt", ">": "gt", "greaterthan": "gt", "ge": "gteq", ">=": "gteq"},
}
"""Tests that are comparisons, as Jinja's operators are called."""
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda left, right: left == right,
    "ne": lambda left, right: left != right,
    "lt": lambda left, right: left < right,
    "lteq": lambda left, right: left <= right,
    "gt": lambda left, right: left > right,
    "gteq": lambda left, right: left >= right,
}


class TracedCodeGenerator(CodeGenerator):
    """Jinja's compiler, with each operation that it would leave to Python sent to the environment."""

    # Jinja runs constant output expressions while it compiles, and writes the result as a literal. `Impossible` is how
    # its own compiler says "not a constant": only text of the template itself is folded.
    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Make a constant of template text alone: everything else is left to the rendering, so that it is
        traced.
        """
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    # `a ~ b`: Jinja would call `markup_join` or `str_join` of its runtime, which are module functions that an
    # environment can't replace.
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write code for `~`: the environment joins the operands as texts, with provenance."""
        self.write("environment.concat((")
        for item in node.nodes:
            self.write("environment.to_text(")
            self.visit(item, frame)
            self.write("), ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        # The operands behind the first are functions, for `a < b < c` looks at c only where a < b.
        """Write code for a comparison: the environment compares, with each operand behind the first as a
        function.
        """
        self.write("environment.compare_chain(")
        self.visit(node.expr, frame)
        for operand in node.ops:
            self.write(f", ({operand.op!r}, lambda: ")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")

    # Jinja compiles `x[a:b]` to a Python slice of x; everything else it already sends to `environment.getitem`.
    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        """Write code for a subscript: slices go through the environment."""
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.slice(")
        self.visit(node.node, frame)
        for bound in (node.arg.start, node.arg.stop, node.arg.step):
            self.write(", ")
            if bound is None:
                self.write("None")
            else:
                self.visit(bound, frame)
        self.write(")")


class TracedEnvironment(TemplateEnvironment):
    """The environment of one template, which renders with provenance. `start` is called before each rendering.

    Attributes:
        trace: where the questions of this rendering are noted.
        lost_provenance: the output may hold characters of a field as if they were the template's. Such a rendering is
            thrown away whole, and the plain one is used with unknown provenance.
        has_unknown_nodes: the template uses a construct that ALLOWED_NODES does not name.
    """

    # Jinja's sandbox sends only the operators in these sets to `call_binop` and `call_unop`.
    code_generator_class = TracedCodeGenerator
    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))
    intercepted_unops = frozenset(("+", "-"))

    def __init__(self) -> None:
        super().__init__(finalize=self.to_text)
        self.trace = Trace()
        self.lost_provenance = False
        """Something was made of fields that could hold their text without its provenance (bytes, say)."""
        self.has_unknown_nodes = False
        # Every filter and test is wrapped, those of a later Jinja too: what no list names counts as untraced.
        own_filters = {
            "tojson": traced_tojson,
            "join": self._join,
            "safe": _value_unchanged,
            "string": self.to_text,
        }
        for name, filter in {**self.filters, **own_filters}.items():
            self.filters[name] = self._wrap_jinja_filter_for_tracing(name, filter)
        own_tests: dict[str, Callable[..., Any]] = {
            "sequence": _is_sequence,
            "iterable": _is_iterable,
        }
        tests: dict[str, Any] = dict(self.tests)
        for name, test in (tests | own_tests).items():
            self.tests[name] = self._wrap_jinja_test_for_tracing(name, test)

    def start(self, trace: Trace) -> None:
        """Make ready for one rendering, whose questions go to `trace`."""
        self.trace = trace
        self.lost_provenance = False
        if self.has_unknown_nodes:
            trace.opaque = True
            self.lost_provenance = True

    # The tree is judged here, before the compiler optimises or rewrites any of it.
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Parse a template, and note whether it has nodes that are not known to be safe for recipes."""
        tree = super()._parse(source, name, filename)
        self.has_unknown_nodes = not all(
            isinstance(node, ALLOWED_NODES) for node in tree.find_all(nodes.Node)
        )
        return tree

    # text

    def concat(self, strings: Iterable[str]) -> str:
        """Join strings, with provenance."""
        return traced_string.concat(strings)

    def to_text(self, value: Any) -> str:
        """`str(value)`, with provenance."""
        if isinstance(value, str):
            return value
        text = str(value)
        if _holds_no_field(value):
            return text
        # What an object shows of itself may hold any field: a list, a namespace, a bound method.
        return self._text_of_unknown_origin(text)

    def _text_of_unknown_origin(self, text: str) -> str:
        """A text whose origin is unknown, in this trace."""
        return traced_string.text_of_unknown_origin(text, self.trace)

    def _join(self, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        """Join the items of a value, or an attribute of each, by a separator, with provenance: the filter
        `join`.
        """
        if attribute is not None:
            value = [self.getitem(item, attribute) for item in value]
        return traced_string.join(self.to_text(d), [self.to_text(item) for item in value])

    # what is not traced

    def _call_untraced(
        self, operation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of an operation that the trace can't hold.

        Plain arguments are no fields, so what is made of them is the same for every row. Of others the recipe is lost.
        The provenance is lost only where the operation made plain copies: Jinja's `truncate` and `indent` slice and
        add, so that a Traced comes out of them with all its segments.

        Args:
            operation: what is called with `args` and `kwargs`.
            args: values of the template; any may be, or hold, a field.
            kwargs: likewise.

        Returns:
            What the operation returns; a text of it as a Traced of unknown origin.
        """
        if _holds_no_field(args) and _holds_no_field(kwargs):
            return operation(*args, **kwargs)
        self.trace.opaque = True
        result = operation(*args, **kwargs)
        is_number_or_none = type(result) is not str and type(result) in SCALARS
        if isinstance(result, Traced) or is_number_or_none:
            return result
        if isinstance(result, str):
            return self._text_of_unknown_origin(str(result))
        # Anything else (bytes, an iterator, a list with plain copies) might put a field's characters into the output
        # unmarked. Nobody can look into it, so the whole rendering counts as one of unknown provenance.
        holds_only_traced = isinstance(result, list | tuple) and all(
            isinstance(item, Traced) for item in result
        )
        if not holds_only_traced and not isinstance(result, Undefined):
            self.lost_provenance = True
        return result

    # operators

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`left operator right`: text and lists are joined, repeated and formatted with provenance, nothing else."""
        result = None
        if operator == "+":
            result = _add_with_provenance(left, right)
        elif operator == "*":
            result = _repeat_with_provenance(left, right)
        elif operator == "%" and type(left) is str:
            result = _fill_percent_s(left, right)
        if result is not None:
            return result
        return self._call_untraced(self.binop_table[operator], (left, right), {})

    def call_unop(self, context: Context, operator: str, arg: Any) -> Any:
        """Call a unary operator, as an untraced operation."""
        return self._call_untraced(self.unop_table[operator], (arg,), {})

    def compare_chain(self, left: Any, *operands: tuple[str, Callable[[], Any]]) -> Any:
        """`left < b <= c`: each operator with the function that gives its right side."""
        result: Any = True
        for operator, operand in operands:
            right = operand()
            result = self.compare(operator, left, right)
            if not result:
                return result
            left = right
        return result

    def compare(self, operator: str, left: Any, right: Any) -> Any:
        """`left operator right`, its questions noted where a field is compared with plain text."""
        if operator == "in":
            return self._contains(right, left)
        if operator == "notin":
            return not self._contains(right, left)
        operation = COMPARE[operator]
        # `Traced` notes the question itself, also where it stands on the right: Python asks the subclass first.
        if isinstance(left, Traced) and _is_plain_text_or_scalar(right):
            return operation(left, right)
        if isinstance(right, Traced) and _is_plain_text_or_scalar(left):
            return operation(left, right)
        if operator in ("eq", "ne"):
            if left is right and isinstance(left, list | dict):
                # One and the same part of the conversation, whatever it holds.
                return operator == "eq"
            if _is_container(left) and _is_plain_text_or_scalar(right):
                # A list is no text, whatever it holds.
                return operator == "ne"
        return self._call_untraced(operation, (left, right), {})

    def _contains(self, container: Any, item: Any) -> bool:
        """`item in container`, its questions noted where one side is plain text."""
        if isinstance(item, Traced):
            texts = _texts_field_can_equal_in_container(container)
            if texts is not None:
                return item.is_one_of(texts)
            if type(container) is str:
                return item.is_part_of(container)
        elif type(item) is str and isinstance(container, Traced):
            return item in container
        elif type(item) is str and isinstance(container, list | tuple):
            # Entry by entry, as Python's own `in` does, so that a field among them notes its comparison.
            return any(bool(self.compare("eq", entry, item)) for entry in container)
        elif type(item) in SCALARS and isinstance(container, dict):
            # A field can't be a key without an opaque trace: its hash was asked for.
            return item in container
        return bool(self._call_untraced(lambda one, other: other in one, (container, item), {}))

    # subscripts

    # `content.parts` must be undefined as it is of a str. Without this, templates would see the attributes of `Traced`.
    def getattr(self, obj: Any, attribute: str) -> Any:
        """An attribute of an object; of a field only those that a text has."""
        if isinstance(obj, Traced) and not hasattr(str, attribute):
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    # Jinja falls back to attributes here, `content['parts']`: the same as above.
    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item of an object; a subscript that is a field is an untraced operation."""
        if isinstance(obj, Traced) and isinstance(argument, str) and not hasattr(str, argument):
            return self.undefined(obj=obj, name=argument)
        if type(argument) in SCALARS or isinstance(argument, Undefined):
            return super().getitem(obj, argument)
        # The subscript is a field: which entry it names depends on what the row holds.
        return self._call_untraced(super().getitem, (obj, argument), {})

    def slice(self, obj: Any, start: Any, stop: Any, step: Any) -> Any:
        """`obj[start:stop:step]`; compiled code calls it (`TracedCodeGenerator.visit_Getitem`)."""
        bounds_are_plain = all(type(bound) in SCALARS for bound in (start, stop, step))
        if bounds_are_plain and isinstance(obj, str | list | tuple):
            return obj[start:stop:step]
        return self._call_untraced(
            lambda value, *bounds: value[slice(*bounds)], (obj, start, stop, step), {}
        )

    # calls

    # The odd names are Jinja's: a macro may have arguments called `self` and `context`.
    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        # Jinja hands the variables of loops and blocks on, for functions that take the context. No function here does.
        """Call a function or method of a template: with its trace where that is kept, else untraced."""
        for name in ("_loop_vars", "_block_vars"):
            kwargs.pop(name, None)

        def call(*args: Any, **kwargs: Any) -> Any:
            return super(TracedEnvironment, __self).call(__context, __obj, *args, **kwargs)

        if __self._only_hands_arguments_on(__obj, args, kwargs):
            return call(*args, **kwargs)
        if isinstance(__obj, MethodType | BuiltinMethodType):
            return __self._call_method(__obj, call, args, kwargs)
        return __self._call_untraced(call, args, kwargs)

    def _only_hands_arguments_on(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Is it a function of templates, which only hands its arguments on?

        A macro is code of the template, whose operations come here one by one; `dict` and `namespace` store values
        without looking at them; so do the methods of STRUCTURAL_METHODS.
        """
        if isinstance(function, Macro | LoopContext | TemplateDict):
            return True
        if function is TemplateNamespace:
            return True
        if function is raise_exception:
            # The message is shown as the reason why a turn can't be trained, and is then that of one row.
            self.trace.opaque = self.trace.opaque or not _holds_no_field(args)
            return True
        owner = getattr(function, "__self__", None)
        if isinstance(owner, GenerationTag):
            return True
        if owner is self:  # strftime_now, whose clock is the same for all rows
            return _holds_no_field(args) and _holds_no_field(kwargs)
        for kind, names in STRUCTURAL_METHODS.items():
            if isinstance(owner, kind) and function.__name__ in names:
                # The default of `get` may be a field, and so may what `cycle` goes through; a key may not.
                return function.__name__ == "cycle" or _holds_no_field(args[:1])
        return False

    def _call_method(
        self, method: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of a bound method: with provenance for the known ones of a text, else untraced."""
        owner, name = method.__self__, method.__name__
        if (
            isinstance(owner, Traced)
            and name in TRACED_METHODS
            and not kwargs
            and _holds_no_field(args)
        ):
            return call(*args)
        if isinstance(owner, str) and name == "join" and len(args) == 1 and not kwargs:
            items = list(args[0])
            if all(isinstance(item, str) for item in items):
                return traced_string.join(owner, items)
            return self._call_untraced(owner.join, (items,), {})
        if isinstance(owner, Traced):
            # An unknown method, or keyword arguments, which the node of an atom has no place for.
            self.trace.opaque = True
        return self._call_method_untraced(owner, call, args, kwargs)

    def _call_method_untraced(
        self, owner: Any, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The owner counts as an argument: it may hold fields, too."""
        return self._call_untraced(
            lambda _, *args, **kwargs: call(*args, **kwargs), (owner, *args), kwargs
        )

    # `'...'.format(x)` reaches attributes through its fields, so the sandbox replaces it; here also for its provenance.
    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Wrap `str.format` as an untraced operation; None for what is not that method."""
        format = super().wrap_str_format(value)
        if format is None:
            return None
        template = value.__self__

        def format_untraced(*args: Any, **kwargs: Any) -> Any:
            return self._call_untraced(
                lambda _, *args, **kwargs: format(*args, **kwargs), (template, *args), kwargs
            )

        return format_untraced

    # filters and tests

    def _wrap_jinja_filter_for_tracing(
        self, name: str, filter: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The filter, taken for an untraced operation unless it is listed and its arguments are plain."""
        # Filters that are marked so get the context or environment as their first argument. It holds every field of
        # the row, and must not count as a value that the filter was given.
        environment_args = 1 if hasattr(filter, "jinja_pass_arg") else 0
        takes_text_arguments = name in TEXT_ARGUMENT_FILTERS
        needs_text = name in TEXT_FILTERS

        def keeps_trace(values: tuple[Any, ...], options: tuple[Any, ...]) -> bool:
            """Does the filter look at shapes alone, or ask its questions through `Traced`?"""
            if name == "dictsort":
                return not options  # by key, and keys are structure
            if name not in STRUCTURAL_FILTERS:
                return False
            if needs_text and not isinstance(values[0], str):
                return False
            return takes_text_arguments or _holds_no_field(options)

        def apply(*args: Any, **kwargs: Any) -> Any:
            values = args[environment_args:]
            if keeps_trace(values, (*values[1:], *kwargs.values())):
                return filter(*args, **kwargs)
            if name in ELEMENT_FILTERS:
                # The order or choice of elements depends on what fields hold, so no recipe; but the elements are the
                # very objects that went in, and keep their provenance.
                self.trace.opaque = self.trace.opaque or not (
                    _holds_no_field(values) and _holds_no_field(kwargs)
                )
                return filter(*args, **kwargs)
            return self._call_untraced(
                lambda *values, **kwargs: filter(*args[:environment_args], *values, **kwargs),
                values,
                kwargs,
            )

        if environment_args:
            apply.jinja_pass_arg = filter.jinja_pass_arg  # type: ignore[attr-defined]
        return apply

    def _wrap_jinja_test_for_tracing(
        self, name: str, test: Callable[..., Any]
    ) -> Callable[..., Any]:
        """The test (`is ...`): a comparison through `compare`, one of types as it is, any other one untraced."""
        if name in COMPARISONS:
            operator = COMPARISONS[name]
            return lambda left, right: self.compare(operator, left, right)
        if name in STRUCTURAL_TESTS:
            return test
        environment_args = 1 if hasattr(test, "jinja_pass_arg") else 0

        def apply(*args: Any, **kwargs: Any) -> Any:
            values = args[environment_args:]
            return self._call_untraced(
                lambda *values, **kwargs: test(*args[:environment_args], *values, **kwargs),
                values,
                kwargs,
            )

        if environment_args:
            apply.jinja_pass_arg = test.jinja_pass_arg  # type: ignore[attr-defined]
        return apply


def _holds_no_field(value: Any) -> bool:
    """Is it proved to hold no field of a conversation, and so the same for every row of a recipe?

    True for scalars and for containers of nothing else, by exact type: any other class might carry a field inside. The
    price is paid by objects that hold none (a namespace of numbers): their template loses its recipe.
    """
    if type(value) in SCALARS:
        return True
    if isinstance(value, list | tuple):
        return all(_holds_no_field(item) for item in value)
    if isinstance(value, dict):
        return all(_holds_no_field(key) and _holds_no_field(item) for key, item in value.items())
    # An undefined value holds a name and a hint for errors; a range holds integers.
    return isinstance(value, Undefined | range)


def _is_plain_text_or_scalar(value: Any) -> bool:
    """Is it plain text, whose comparison `Traced` notes, or a scalar, which no text equals or orders with?"""
    return type(value) in SCALARS or isinstance(value, Undefined)


def _is_container(value: Any) -> bool:
    """Is it a container (list, tuple or mapping), which no text equals?"""
    return isinstance(value, list | tuple | dict)


def _add_with_provenance(left: Any, right: Any) -> Any:
    """`left + right` of two texts, two lists or two tuples; None for anything else."""
    if isinstance(left, str) and isinstance(right, str):
        return traced_string.concat((left, right))
    # Only lengths and order change; the fields in them stay what they are.
    if type(left) is type(right) and isinstance(left, list | tuple):
        return left + right
    return None


def _repeat_with_provenance(left: Any, right: Any) -> str | None:
    """`left * right` of a field and a number, in either order; None for anything else."""
    if isinstance(left, Traced) and type(right) is int:
        return left * right
    if isinstance(right, Traced) and type(left) is int:
        return right * left
    return None


def _fill_percent_s(template: str, values: Any) -> str | None:
    """`template % values` with provenance, where the template has no conversion but %s, and each value is text.

    None for any other format.
    """
    if "\0" in template:
        return None
    # `%%` stands for `%`; it must not be cut as the beginning of `%%s`. NUL holds its place meanwhile.
    pieces = template.replace("%%", "\0").split("%s")
    has_other_conversion = any("%" in piece for piece in pieces)
    items = values if isinstance(values, tuple) else (values,)
    if has_other_conversion or len(items) != len(pieces) - 1:
        return None
    if not all(isinstance(item, str) for item in items):
        return None
    literals = [piece.replace("\0", "%") for piece in pieces]
    parts = [literals[0]]
    for item, literal in zip(items, literals[1:], strict=True):
        parts += [item, literal]
    return traced_string.concat(parts)


def _texts_field_can_equal_in_container(container: Any) -> tuple[str, ...] | None:
    """The texts that a field can be equal to in a dict's keys or a list of scalars; None for any other container."""
    if isinstance(container, dict):
        keys = tuple(container)
        return keys if all(type(key) is str for key in keys) else None
    if isinstance(container, list | tuple) and all(type(entry) in SCALARS for entry in container):
        return tuple(entry for entry in container if type(entry) is str)
    return None


def _value_unchanged(value: Any) -> Any:
    """`safe` marks text for automatic escaping, which chat templates do not use."""
    return value


def _is_sequence(value: Any) -> bool:
    """Is a value a sequence? Told without its length, which Jinja's test asks for: that would tie a recipe
    to fields of one length.
    """
    return isinstance(value, Traced) or jinja2.tests.test_sequence(value)


def _is_iterable(value: Any) -> bool:
    """Is a value iterable, as Jinja's test says? A field is."""
    return isinstance(value, Traced) or jinja2.tests.test_iterable(value)
