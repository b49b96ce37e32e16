"""Training from recipes: on Gram matrices, by second-order methods (matrix completion: by Adam); of causal models, on
fresh sequences.

recipe = load_recipe("diag-l4-u5")
trained = train(recipe)              # .model is a LinearTransformer; train_on_sequences for a SequenceRecipe
"""

from interp.models.training.completion_recipe import CompletionRecipe
from interp.models.training.recipe import Optimiser, Recipe, load_recipe, recipe_names
from interp.models.training.run import train
from interp.models.training.sequence_recipe import SequenceOptimiser, SequenceRecipe
from interp.models.training.sequence_run import TrainedOnSequences, train_on_sequences
from interp.models.training.sequences import Stage
from interp.models.training.trained import Step, Trained

__all__ = [
    "CompletionRecipe",
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
