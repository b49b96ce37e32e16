"""The recovered algorithm in torch."""

from __future__ import annotations

from interp.reports.emit.languages import register_language
from interp.reports.emit.python_function import Dialect
from interp.results import Certificate

__all__ = ["emit"]

TORCH = Dialect(
    alias="torch",
    imports="import torch",
    array="torch.tensor({0}, dtype=torch.float64)",
    decode="torch.frombuffer(bytearray(data), dtype=torch.float32).double()",
    eye="torch.eye({0}.shape[1], dtype={0}.dtype)",
    note="Give float64 tensors. torch.func.vmap runs it on many prompts at once.",
    contents={
        ("regression", "input"): "torch.cat([X, x_query[None]])",
        ("regression", "label"): "torch.cat([y, 0 * y[:1]])[:, None]",
        ("points", "input"): "x[:, None]",
        ("points", "label"): "torch.cat([y, 0 * y[:1]])[:, None]",
        ("points", "line"): "torch.stack([x**0, x / {0}], 1)",
        ("completion", "input"): "torch.cat([A, B])",
        ("completion", "label"): "torch.cat([C, C.new_zeros(len(B), C.shape[1])])",
        ("states", "zero"): "torch.zeros_like(states)",
        ("states", "current"): "states",
        ("states", "previous"): "torch.cat([torch.zeros_like(states[:1]), states[:-1]])",
    },
    setup={"points": "x = torch.cat([x, x_query.reshape(1)])"},
)


@register_language("torch")
def emit(certificate: Certificate) -> str:
    from interp.reports.emit.python import python_source  # imports numpy, which takes its time

    return python_source(certificate, TORCH)
