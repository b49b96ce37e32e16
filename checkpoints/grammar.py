"""The small languages of a layout description: their words, and the numbers that may depend on the token size D.

    number  := term (("+" | "-") term)*
    term    := signed (("*" | "/") signed)*
    signed  := "-" signed | digits | "D" | "sqrt" "(" number ")" | "(" number ")"

The language of weights is in ``interp.checkpoints.expressions``. Both are parsed here, never evaluated as code.
"""

from __future__ import annotations

import functools
import math
import operator
import re

from interp.errors import LayoutError

__all__ = ["Parser", "number"]

_LENGTH_LIMIT = 1000
_DEPTH_LIMIT = 40

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<quoted>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[A-Za-z_{][\w{}]*(?:\.[\w{}]+)*)"
    r"|(?P<transpose>\.T(?![\w.{]))"
    r"|(?P<sign>[-+@*/()\[\],:]))"
)


class Parser:
    """Tokens of one expression, and what to say when they make no sense."""

    def __init__(self, text: str, where: str, grammar: str) -> None:
        self.where, self.text, self.grammar = where, text, grammar
        self.tokens: list[tuple[str, str]] = []
        self.next = 0
        self.depth = 0
        if len(text) > _LENGTH_LIMIT:
            raise LayoutError(f"{where} has {len(text)} characters, expected at most {_LENGTH_LIMIT}")
        position, end = 0, len(text.rstrip())
        while position < end:
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(f"{text[position:].strip()[:20]!r} makes no sense")
            self.tokens.append((str(match.lastgroup), match[str(match.lastgroup)]))
            position = match.end()

    def error(self, reason: str) -> LayoutError:
        return LayoutError(f"{self.where} = {self.text!r}: {reason}; expected {self.grammar}")

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.next] if self.next < len(self.tokens) else ("end", "")

    def take(self, *signs: str) -> str | None:
        """The next token if it is one of ``signs``, else None."""
        kind, value = self.peek()
        if kind == "sign" and value in signs:
            self.next += 1
            return value
        return None

    def need(self, sign: str) -> None:
        if self.take(sign) is None:
            raise self.error(f"{sign!r} is missing before {self.peek()[1] or 'the end'!r}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.error(f"it nests deeper than {_DEPTH_LIMIT}")

    def finish(self) -> None:
        if self.next < len(self.tokens):
            raise self.error(f"{self.peek()[1]!r} is not expected there")


def number(text: str, where: str, D: int) -> int | float:
    """The value of a number such as "D-1" or "1/sqrt(D-1)"; whole when it is. Raises LayoutError."""
    parser = Parser(text, where, "numbers, D, + - * /, sqrt(…)")
    try:
        value = _sum(parser, D)
        parser.finish()
        whole = value.is_integer()
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        if isinstance(error, LayoutError):
            raise
        raise parser.error(f"it has no value at D = {D}") from error
    if not math.isfinite(value):
        raise parser.error(f"it has no value at D = {D}")
    return int(value) if whole else value


_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def _sum(parser: Parser, D: int, signs: str = "+-") -> float:
    """Sums of products: the operands of + and - are the sums of * and /, whose operands are signed numbers."""
    inner = functools.partial(_sum, signs="*/") if signs == "+-" else _signed
    value = inner(parser, D)
    while sign := parser.take(*signs):
        value = _OPERATORS[sign](value, inner(parser, D))
    return value


def _signed(parser: Parser, D: int) -> float:
    parser.deeper()
    if parser.take("-"):
        value = -_signed(parser, D)
    else:
        kind, word = parser.peek()
        if parser.take("("):
            value = _sum(parser, D)
            parser.need(")")
        elif kind == "number":
            parser.next += 1
            value = float(word)
        elif kind == "name" and word == "D":
            parser.next += 1
            value = float(D)
        elif kind == "name" and word == "sqrt":
            parser.next += 1
            parser.need("(")
            value = math.sqrt(_sum(parser, D))
            parser.need(")")
        else:
            raise parser.error(f"{word!r} is not expected there" if word else "it ends too early")
    parser.depth -= 1
    return value
