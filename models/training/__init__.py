"""Training on Gram matrices, by second-order methods, from recipes.

recipe = load_recipe("diag-l4-u5")
trained = train(recipe)              # .model is a LinearTransformer
"""

from interp.models.training.recipe import Optimiser, Recipe, load_recipe, recipe_names
from interp.models.training.run import Trained, train
from interp.models.training.search import Step

__all__ = ["Optimiser", "Recipe", "Step", "Trained", "load_recipe", "recipe_names", "train"]
