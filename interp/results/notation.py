"""Updates as formulas: one way to write a product, and a table of words for each notation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from interp.results.update import OMEGAS, Factor, Term, Update, shape

__all__ = ["MOMENTS", "PLAIN", "Notation", "equation"]

# What M_bg is called, by its channels; M_gb is its transpose.
MOMENTS: Mapping[tuple[str, str], str] = {
    ("x", "x"): "Sigma", ("x", "y"): "alpha", ("y", "y"): "lambda",
    ("phi", "phi"): "Sigma", ("phi", "y"): "alpha",
    ("p", "q"): "B", ("q", "q"): "A",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Notation:
    """``words``: templates by factor, with {0} what the factor is made of and {1} what stands to its right; "inner",
    "outer", "apply" and "transposed" are those of moments by the sizes of their channels, "moment" the name of one that
    has none in MOMENTS. ``letters``: symbols by name. ``typeset`` sets a formula among words, ``prose`` the words and
    ``name`` what is neither letter nor word, such as a channel of some file."""

    words: Mapping[str, str]
    letters: Mapping[str, str]
    typeset: Callable[[str], str] = str
    prose: Callable[[str], str] = str
    name: Callable[[str], str] = str

    def letter(self, name: str) -> str:
        return self.letters[name] if name in self.letters else self.name(name)

    def symbol(self, name: str) -> str:
        """Of a coefficient."""
        if name in OMEGAS:
            return self.words["omega"].format(self.letter("tau" if ":" in name else "omega"), name)
        return self.words["named"].format(self.letter(name))

    def moment(self, b: str, g: str) -> str:
        if (b, g) in MOMENTS:
            return self.letter(MOMENTS[b, g])
        if (g, b) in MOMENTS:
            return self.words["transposed"].format(self.letter(MOMENTS[g, b]))
        return self.words["moment"].format(self.letter(b), self.letter(g))

    def product(self, term: Term, sizes: Mapping[str, int], symbol: str) -> str:
        """The factors, with ``symbol`` for a coefficient among them."""
        right = ""
        for factor in reversed(term.factors):
            right = self._times(factor, right, sizes, symbol)
        return right

    def _times(self, factor: Factor, right: str, sizes: Mapping[str, int], symbol: str) -> str:
        name, of = factor.name, factor.of
        if name in ("moment", "trace", "blocks"):
            small = [sizes.get(c) == 1 for c in of]
            made = self.moment(*(of[::-1] if small == [True, False] else of))
            if name == "moment" or all(small):
                name = "inner" if small == [True, False] else "outer" if small == [False, True] else "apply"
        elif name in ("coefficient", "products"):
            made = symbol
        else:
            made = self.letter(of[0]) if of else ""
        return self.words[name].format(made, right).strip()

    def update(self, update: Update, sizes: Mapping[str, int], coefficient: Callable[[Term], str] | None = None) -> str:
        """One line; ``coefficient`` writes numbers in place of symbols, without their sign."""
        channel = self.words["all"] if update.channel is None else self._token(update.channel)
        text = channel if update.kept else ""
        for term in update.terms:
            symbol = (coefficient or (lambda t: self.symbol(t.name)))(term)
            bare = term.reads_array or term.coefficient is None
            product = self.product(term, sizes, symbol)
            negative = (term.sign < 0) != (coefficient is not None and (term.number or 0.0) < 0)
            sign = self.words["minus"] if negative else "+"
            sign = f" {sign} " if text else sign if negative else ""
            text += sign + (product if bare else self.words["times"].format(symbol, product))
        return self.words["becomes"].format(channel, text or "0")

    def _token(self, channel: str) -> str:
        return self.words["token"].format(self.letter(channel), "")

    def equations(self, layers: Iterable[Sequence[Update]], sizes: Mapping[str, int]) -> Iterator[str]:
        for update in shape(layers):
            yield self.update(update, sizes)


PLAIN = Notation(
    words={
        "omega": "{0}_{1}", "named": "{0}", "transposed": "{0}ᵀ", "moment": "M[{0}, {1}]", "times": "{0} {1}",
        "becomes": "{0} ← {1}", "minus": "−", "all": "e[a]",
        "token": "{0}", "inner": "⟨{0}, {1}⟩", "outer": "{1} {0}", "apply": "{0} {1}", "trace": "tr {0} {1}",
        "blocks": "(M ⊙ {0}) {1}", "products": "Σ {0}[a, b, g, e] Σ_j e_j[b] ⟨e_j[g], e[e]⟩",
        "coefficient": "{0} {1}", "projection": "Π {1}", "written": "Π′ {1}", "mean": "{0}̄", "deviation": "({0} − {0}̄)",
        "slope": "(C / V) {1}", "fitted": "(1 − h)(n + 1)/n {1}",
    },
    letters={
        "Sigma": "Σ", "alpha": "α", "lambda": "λ", "omega": "ω", "tau": "τ", "Omega": "Ω", "eta": "η", "phi": "φ",
    },
)  # fmt: skip


def equation(layers: Iterable[Sequence[Update]], sizes: Mapping[str, int]) -> str:
    """The update of a layer on one line of text."""
    return ";  ".join(PLAIN.equations(layers, sizes))
