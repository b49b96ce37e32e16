"""The one result object. Analyses make it; reports, golden files and the command line read it, and nothing else.

Every number that came from data stands beside its uncertainty. NaN never appears: what is not known is None.
``Analysis.to_dict`` is the JSON document "interp-probe/1"; ``Analysis.from_dict`` is its inverse. What a module of this
room offers is said in its ``__all__``.
"""

from interp.models.skipped import *
from interp.models.words import *
from interp.probes.interventions import *
from interp.results.analysis import *
from interp.results.behaviour import *
from interp.results.closed_form import *
from interp.results.completion import *
from interp.results.document import *
from interp.results.evidence import *
from interp.results.probes import *
from interp.results.recovered import *
from interp.results.regression import *
from interp.results.section import *
from interp.results.sequences import *
from interp.results.sweep import *
from interp.results.tables import *
from interp.results.update import *
