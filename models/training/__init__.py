"""Training from recipes: one run, recorded and resumed, and a method for each task.

recipe = load_recipe("diag-l4-u5")
trained = train(recipe)              # .model is a LinearTransformer

A method says what a recipe for its task may state, how the weights are found, and what they are judged by
(``interp.models.training.method``). Another task's method is a file that calls ``register_method``.
"""

# The methods register themselves.
from interp.models.training import completion as completion
from interp.models.training import embedded as embedded
from interp.models.training import search as search
from interp.models.training import sequences as sequences
from interp.models.training.method import Method, Step, register_method
from interp.models.training.recipe import Recipe, load_recipe, recipe_names
from interp.models.training.run import Trained, train

__all__ = ["Method", "Recipe", "Step", "Trained", "load_recipe", "recipe_names", "register_method", "train"]
