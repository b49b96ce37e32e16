"""L-BFGS as torch has it, without its compiler: an optimiser imports ``torch._dynamo`` when it is made, which takes two
seconds and serves nothing here."""

from __future__ import annotations

import inspect

import torch

__all__ = ["LBFGS"]


class LBFGS(torch.optim.LBFGS):
    """The same steps. Gradients are to be cleared by hand, since ``zero_grad`` imports the compiler too."""

    add_param_group = inspect.unwrap(torch.optim.LBFGS.add_param_group)
