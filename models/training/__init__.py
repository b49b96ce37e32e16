"""Training from recipes: on Gram matrices, by second-order methods; of causal models, on fresh sequences.

recipe = load_recipe("diag-l4-u5")
trained = train(recipe)              # .model is a LinearTransformer; train_on_sequences for a SequenceRecipe
"""

from interp.models.training.recipe import Optimiser, Recipe, load_recipe, recipe_names
from interp.models.training.run import Trained, train
from interp.models.training.search import Step
from interp.models.training.sequence_recipe import SequenceOptimiser, SequenceRecipe
from interp.models.training.sequence_run import TrainedOnSequences, train_on_sequences
from interp.models.training.sequences import Stage

__all__ = [
    "Optimiser",
    "Recipe",
    "SequenceOptimiser",
    "SequenceRecipe",
    "Stage",
    "Step",
    "Trained",
    "TrainedOnSequences",
    "load_recipe",
    "recipe_names",
    "train",
    "train_on_sequences",
]
