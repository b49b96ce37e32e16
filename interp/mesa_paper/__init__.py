"""The figures of "Uncovering mesa-optimization algorithms in Transformers" beside those of the models that ship.

Von Oswald et al., arXiv 2309.05858; the paper's figures are those of the authors' stored results. Four groups:

    losses        of the trained networks and of the comparators, on sequences of their own
    compression   the networks replaced by their heads' block means, by fewer numbers, and by networks in between
    probes        the next-state and preconditioned-state probes by layer and position, as published and held out
    training      the six-layer network with keys of size 40 along its training, as it was published
"""

from interp.mesa_paper.tables import GROUPS, measure, shipped_results

__all__ = ["GROUPS", "measure", "shipped_results"]
