"""Priors as text, such as "linear + periodic(period=1, on='time') + gp": parsed, never executed.

Names are those of the registry. `+`, `*` and `|` combine, `on=` and `.on(...)` choose columns,
`.warped()` warps inputs. Nothing else is understood.
"""

import ast
import dataclasses
import re
from collections.abc import Callable
from typing import Any

from dvip.processes.process import ImplicitProcess
from dvip.registry import PRIORS

__all__ = ["parsed_prior"]

# No such text is longer, and no size among the options is larger.
MAX_TEXT, MAX_NUMBER = 1_000, 10**6
# The option that may be any number, and that of any process.
UNBOUNDED, COLUMNS = "period", "on"
CURVES = "curves"

OPERATORS: dict[type, Callable[[ImplicitProcess, ImplicitProcess], ImplicitProcess]] = {
    ast.Add: lambda a, b: a + b,
    ast.Mult: lambda a, b: a * b,
    ast.BitOr: lambda a, b: a | b,
}


def parsed_prior(
    text: str, read_curves: Callable[[str], ImplicitProcess] | None = None
) -> ImplicitProcess:
    """The prior that a text describes; a ValueError, which says what to do, if it is none.

    Files of curves are read only where a function is given that does so.
    """
    if text in PRIORS:
        return PRIORS[text]()
    if len(text) > MAX_TEXT:
        raise ValueError(f"prior: a text of {len(text):,} letters is too long for a prior.")
    return _Parser(text, read_curves).result()


@dataclasses.dataclass(frozen=True)
class _Parser:
    text: str
    read_curves: Callable[[str], ImplicitProcess] | None

    def result(self) -> ImplicitProcess:
        # Python has no names with hyphens; a file need not be quoted.
        source = self.text
        for name in PRIORS:
            if "-" in name:
                source = re.sub(rf"\b{name}\b", name.replace("-", "_"), source)
        source = re.sub(
            rf"\b{CURVES}\(\s*([^\"'\s(),=][^\"'(),=]*?)\s*([,)])", rf"{CURVES}('\1'\2", source
        )
        try:
            tree = ast.parse(source.strip(), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise self._error("cannot be read") from None
        return self._process(tree.body)

    def _error(self, reason: str) -> ValueError:
        return ValueError(
            f"prior={self.text!r} {reason}. Write names ({PRIORS.listed()}) with +, * or |, and "
            "options such as periodic(period=1, on='time')."
        )

    def _process(self, node: ast.expr) -> ImplicitProcess:
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](self._process(node.left), self._process(node.right))
        if isinstance(node, ast.Name):
            return self._class(node.id)()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._made(node, node.func.id)
        raise self._error(f"has {ast.unparse(node)[:60]!r}, which is no prior")

    def _class(self, name: str) -> type:
        known = {each.replace("-", "_"): each for each in PRIORS}
        if name not in known:
            raise ValueError(f"{PRIORS.unknown(name)} or combinations of them.")
        return PRIORS[known[name]]

    def _made(self, node: ast.Call, name: str) -> ImplicitProcess:
        """A process with options."""
        options = {
            each.arg: self._value(each.value, each.arg) for each in node.keywords if each.arg
        }
        if len(options) < len(node.keywords):
            raise self._error("has **, which is not understood")
        columns = options.pop(COLUMNS, None)
        if name == CURVES:
            process = self._curves(node, options)
        else:
            cls = self._class(name)
            known = [f.name for f in dataclasses.fields(cls) if f.metadata.get("static")]
            known += ["process"] * (name == "additive")
            strange = [option for option in options if option not in known]
            if strange:
                raise ValueError(
                    f"prior={self.text!r}: {name} has no option {strange[0]!r}; it has "
                    f"{', '.join([*known, COLUMNS])}."
                )
            arguments = [self._argument(each) for each in node.args]
            try:
                process = cls(*arguments, **options)
            except TypeError as error:
                raise self._error(f"has options that do not fit ({error})") from None
        return process if columns is None else process.on(columns)

    def _curves(self, node: ast.Call, options: dict[str, Any]) -> ImplicitProcess:
        if self.read_curves is None:
            raise ValueError(
                f"prior={self.text!r}: a file of curves is read by CurvePrior.read(path), which "
                "can be added to other priors."
            )
        path = node.args[0] if len(node.args) == 1 and not options else None
        if not (isinstance(path, ast.Constant) and isinstance(path.value, str)):
            raise self._error("needs the name of one file, as in curves(past.csv)")
        return self.read_curves(path.value)

    def _method(self, node: ast.Call, method: ast.Attribute) -> ImplicitProcess:
        process = self._process(method.value)
        if method.attr == "warped" and not node.args and not node.keywords:
            return process.warped()
        if method.attr == COLUMNS and len(node.args) == 1 and not node.keywords:
            return process.on(self._value(node.args[0], COLUMNS))
        raise self._error(f"has .{method.attr}(...): there are .on(columns) and .warped()")

    def _argument(self, node: ast.expr) -> Any:
        is_process = isinstance(node, ast.Name | ast.Call | ast.BinOp)
        return self._process(node) if is_process else self._value(node, "")

    def _value(self, node: ast.expr, option: str | None) -> Any:
        """A number, a text, a truth value, None, or several of them."""
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._value(each, option) for each in node.elts)
        if option == "process":
            return self._process(node)
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = ()
        if not isinstance(value, str | int | float | None):
            raise self._error(f"has {ast.unparse(node)[:60]!r}, which is no value")
        if isinstance(value, int | float) and option != UNBOUNDED and abs(value) > MAX_NUMBER:
            raise self._error(f"has {value!r}, which is too large")
        return value
