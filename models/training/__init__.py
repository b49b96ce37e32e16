"""Training from recipes: on Gram matrices, by second-order methods (matrix completion: by Adam); of causal models, on
fresh sequences.

recipe = load_recipe("diag-l4-u5")
trained = train(recipe)              # .model is a LinearTransformer; train_on_sequences for a SequenceRecipe,
                                     # train_embedded for an EmbeddedRecipe
"""

from interp.models.training.completion_recipe import CompletionRecipe
from interp.models.training.embedded_recipe import EmbeddedOptimiser, EmbeddedRecipe
from interp.models.training.embedded_run import TrainedEmbedded, train_embedded
from interp.models.training.recipe import Optimiser, Recipe, load_recipe, recipe_names
from interp.models.training.run import train
from interp.models.training.sequence_recipe import SequenceOptimiser, SequenceRecipe
from interp.models.training.sequence_run import TrainedOnSequences, train_on_sequences
from interp.models.training.sequences import Stage
from interp.models.training.trained import Step, Trained

__all__ = [
    "CompletionRecipe",
    "EmbeddedOptimiser",
    "EmbeddedRecipe",
    "Optimiser",
    "Recipe",
    "SequenceOptimiser",
    "SequenceRecipe",
    "Stage",
    "Step",
    "Trained",
    "TrainedEmbedded",
    "TrainedOnSequences",
    "load_recipe",
    "recipe_names",
    "train",
    "train_embedded",
    "train_on_sequences",
]
