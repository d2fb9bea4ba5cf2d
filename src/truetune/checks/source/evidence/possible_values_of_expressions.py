"""Lists the texts and numbers that an expression may be: names of models, files, counts.

They stand where they are used, or as a default of an option, an entry or an element elsewhere.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from truetune.source.data_flow import Origin
from truetune.source.evaluate_constant_expressions import default_of_parameter
from truetune.source.parsed_source_file import Module

Constant = str | int | float
ENVIRONMENT = ("os.environ.get", "os.getenv")


def possible_texts(module: Module, node: ast.expr | None) -> list[str]:
    """The texts that an expression may be, as far as the file says; a default is one of them.

    Args:
        module: The file.
        node: What stands for a name: `name`, `args.model`, `config["model"]`, an element of a list in a loop.
    """
    if node is None:
        return []
    return list(
        dict.fromkeys(v for v in _possible_constants(module, node) if isinstance(v, str) and v)
    )


def possible_numbers(module: Module, node: ast.expr | None) -> list[float]:
    """The numbers that an expression may be, as far as the file says; a default is one of them.

    Args:
        module: The file.
        node: What stands for a number: `3`, `args.epochs`, `config["epochs"]`, `int(args.epochs)`.
    """
    # `int(args.epochs)`: the default of an option may be a text.
    if isinstance(node, ast.Call) and module.flow.name(node.func) in ("int", "float"):
        node = node.args[0] if node.args else None
    if node is None:
        return []
    numbers = (
        value
        for value in _possible_constants(module, node)
        # True is an int, and no count.
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    return list(dict.fromkeys(numbers))


def _possible_constants(module: Module, node: ast.expr) -> Iterator[Constant]:
    """The constants that an expression may be: its value, else those of its origins."""
    value = module.flow.value(node)
    if isinstance(value, str | int | float):
        yield value
        return
    for origin in module.flow.origins(node):
        yield from _constants_of_origin(module, origin)


def _constants_of_origin(module: Module, origin: Origin) -> Iterator[Constant]:
    """The constants that one origin may be."""
    node = origin.node
    if origin.element:
        yield from _constants_of_list(module, origin)
    # A path leads into a value that is no plain constant.
    elif origin.path:
        return
    elif isinstance(node, ast.Constant):
        yield from (node.value,) if isinstance(node.value, str | int | float) else ()
    elif isinstance(node, ast.arg):
        yield from _single_constant(module, _parameter_default(module, node))
    elif isinstance(node, ast.Attribute):
        yield from _defaults_of_option(module, node.attr)
    elif isinstance(node, ast.Subscript):
        yield from _values_of_key(module, module.flow.value(node.slice))
    elif isinstance(node, ast.Call):
        yield from _default_in_call(module, node)


def _single_constant(module: Module, node: ast.expr | None) -> Iterator[Constant]:
    """The value of an expression, where it is one constant."""
    value = module.flow.value(node)
    if isinstance(value, str | int | float):
        yield value


def _constants_of_list(module: Module, origin: Origin) -> Iterator[Constant]:
    """The constants in the list that an origin is, or is an element of."""
    values = module.flow.value(origin.node)
    if isinstance(values, (list, tuple, frozenset)) and not origin.path:
        yield from (value for value in values if isinstance(value, str | int | float))


def _parameter_default(module: Module, parameter: ast.arg) -> ast.expr | None:
    """The default of a function's parameter; None where it has none."""
    signature = module.scopes.parent.get(parameter)
    return (
        default_of_parameter(signature, parameter) if isinstance(signature, ast.arguments) else None
    )


def _defaults_of_option(module: Module, name: str) -> Iterator[Constant]:
    """The default of an argument of the command line, or of a field of a class of settings."""
    for call in module.methods("add_argument"):
        flags = (module.flow.value(flag) for flag in call.args)
        # argparse makes `--model-name` the attribute model_name.
        written = {flag.lstrip("-").replace("-", "_") for flag in flags if isinstance(flag, str)}
        if name in {*written, module.flow.value(call.keywords.get("dest"))}:
            yield from _single_constant(module, call.keywords.get("default"))
    for field in module.nodes(ast.AnnAssign):
        if (
            isinstance(field.target, ast.Name)
            and field.target.id == name
            and _is_class_field(module, field)
        ):
            yield from _default_of_field(module, field.value)


def _is_class_field(module: Module, node: ast.AnnAssign) -> bool:
    """Is an annotated name a field of a class?"""
    return isinstance(module.scopes.parent.get(node), ast.ClassDef)


def _default_of_field(module: Module, value: ast.expr | None) -> Iterator[Constant]:
    """The constant default of a field: of `x: int = 3` and `x: int = field(default=3)`."""
    if isinstance(value, ast.Call):
        value = module.flow.call(value).keywords.get("default")
    yield from _single_constant(module, value)


def _values_of_key(module: Module, key: object) -> Iterator[Constant]:
    """The values that the dictionaries of the file give a key, and what stands in for a missing
    one.
    """
    for call in module.methods("get") if isinstance(key, str) else ():
        if call.args and module.flow.value(call.args[0]) == key:
            yield from _single_constant(module, call.argument(1, "default"))
    for node in module.nodes(ast.Dict) if isinstance(key, str) else ():
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == key:
                yield from _single_constant(module, value)


def _default_in_call(module: Module, node: ast.Call) -> Iterator[Constant]:
    """The default that a call names: `x.get("model", "default")`, `os.environ.get("MODEL",
    "default")`, `getattr(args, "model", "default")`.
    """
    call = module.flow.call(node)
    if call.named(*ENVIRONMENT):
        yield from _single_constant(module, call.argument(1, "default"))
    elif call.named("getattr") and len(call.args) > 1:
        name = module.flow.value(call.args[1])
        yield from _defaults_of_option(module, name) if isinstance(name, str) else ()
        yield from _single_constant(module, call.argument(2, "default"))
    elif call.method == "get" and call.args:
        yield from _values_of_key(module, module.flow.value(call.args[0]))
