"""The recovered algorithm in numpy."""

from __future__ import annotations

from interp.reports.emit.languages import register_language
from interp.reports.emit.python_function import Dialect
from interp.results import Certificate

__all__ = ["emit"]

NUMPY = Dialect(
    alias="np",
    imports="import numpy as np",
    array="np.array({0}, dtype=float)",
    decode='np.frombuffer(data, "<f4").astype(float)',
    eye="np.eye({0}.shape[1])",
    note="Computed in double precision.",
    contents={
        ("regression", "input"): "np.vstack([X, x_query]).astype(float)",
        ("regression", "label"): "np.append(y, 0.0)[:, None]",
        ("points", "input"): "x[:, None]",
        ("points", "label"): "np.append(y, 0.0)[:, None]",
        ("points", "line"): "np.stack([x**0, x / {0}], 1)",
        ("completion", "input"): "np.vstack([A, B]).astype(float)",
        ("completion", "label"): "np.vstack([C, np.zeros((len(B), np.shape(C)[1]))])",
        ("states", "zero"): "np.zeros_like(states)",
        ("states", "current"): "states",
        ("states", "previous"): "np.vstack([np.zeros_like(states[:1]), states[:-1]])",
    },
    setup={"points": "x = np.append(x, float(x_query))", "states": "states = np.asarray(states, dtype=float)"},
)


@register_language("numpy")
def emit(certificate: Certificate) -> str:
    from interp.reports.emit.python import python_source  # imports numpy, which takes its time

    return python_source(certificate, NUMPY)
