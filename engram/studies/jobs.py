"""From the cells of studies to jobs: one job is one model with one seed and everything it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from engram.errors import EngramError
from engram.ledger import run_stem
from engram.recipes import Recipe, load_recipe, maker_of
from engram.recipes.protocols import Ask, ask_of
from engram.studies.checks import missing_recipes
from engram.studies.schema import Cell, ScaleName, Study


@dataclass(frozen=True)
class Job:
    recipe: Recipe
    """with the seed"""
    asks: tuple[Ask, ...]
    studies: tuple[str, ...]
    """those that want it"""
    minutes: float = 0.0
    train: bool = True
    features: bool = False
    folder: str = ""
    """run folder, where it must be a certain one: the backbone weights that other jobs start from"""
    cell: bool = True
    """wanted by a cell; false: only by jobs that start from its weights"""
    scale: ScaleName = "short"
    picture: bool = False
    source: str = ""
    """what the study calls the recipe: its name, or the path of its file"""

    @cached_property
    def key(self) -> str:
        """``cml_bgnn.mini_5w1s.s111-2b461f``: also the name of its run folder."""
        return f"{run_stem(self.recipe.method, self.recipe.name)}.s{self.recipe.train.seed}-{self.recipe.digest[:6]}"

    @property
    def title(self) -> str:
        return f"{self.recipe.name}, seed {self.recipe.train.seed}"

    @property
    def dataset(self) -> str:
        return self.recipe.data.dataset


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    return replace(recipe, train=replace(recipe.train, seed=seed))


def jobs_of(studies: Iterable[Study], scale: ScaleName, seeds: Sequence[int] = ()) -> tuple[list[Job], dict[str, str]]:
    """The jobs of a scale in the order of the studies, each model once; and a sentence for each recipe not there."""
    jobs: dict[str, Job] = {}
    absent: dict[str, str] = {}
    for study in studies:
        missing = missing_recipes(study)
        absent |= missing
        for _, cell in study.cells():
            for name in [n for n in cell.recipes(scale) if n not in missing][:1]:  # the first that exists
                for seed in seeds or study.scale(scale).seeds:
                    for job in _cell_jobs(study, cell, name, seed, scale):
                        known = jobs.get(job.key)
                        jobs[job.key] = _merged(known, job) if known else job
    return list(jobs.values()), absent


def recipe_called(name: str) -> Recipe:
    """A recipe of the box is read once, a file of the user's anew each time."""
    return load_recipe(name) if name.endswith(".toml") else _boxed_recipe(name)


@cache
def _boxed_recipe(name: str) -> Recipe:
    return load_recipe(name)


def _cell_jobs(study: Study, cell: Cell, name: str, seed: int, scale: ScaleName) -> list[Job]:
    """The job of a cell, after the one that makes the weights it starts from."""
    recipe = recipe_called(name)
    box = study.scale(scale).minutes if cell.minutes is None or scale == "paper" else cell.minutes
    job = Job(
        with_seed(recipe, seed), (ask_of(recipe, cell.ask),), (study.name,), box if cell.train else 0.0, cell.train,
        cell.features, scale=scale, source=name, picture=cell.picture,
    )  # fmt: skip
    return [*_encoder_jobs(study, cell, recipe, scale), job]


def _encoder_jobs(study: Study, cell: Cell, recipe: Recipe, scale: ScaleName) -> list[Job]:
    """The job that makes a recipe's backbone weights, whether they are there or not, after those it starts from."""
    weights, name = recipe.backbone_weights, recipe.name
    if cell.features and not weights:
        raise EngramError(
            f"{study.where}: {name} is to run on frozen features but its [backbone] names no weights: name a run "
            f"folder there, or leave features out"
        )
    maker = weights and (cell.encoder or maker_of(weights))
    if maker:
        return _makers(study, weights, maker, scale)
    if cell.features and not Path(weights).exists():
        raise EngramError(
            f"{study.where}: {name} starts from {weights}, which is not there: train it, or give encoder = the recipe "
            f"that makes it"
        )
    return []


def _makers(study: Study, weights: str, maker: str, scale: ScaleName) -> list[Job]:
    """The job that makes ``weights``, after those that make what it starts from itself, an encoder or a teacher.

    Its seed is that of its own recipe, so that it is one job for all cells and seeds that start from it.
    """
    recipe, box = recipe_called(maker), study.scale(scale).minutes
    starts = {start: maker_of(start) for start in (recipe.backbone_weights, recipe.train.teacher) if start}
    before = [job for start, made_by in starts.items() if made_by for job in _makers(study, start, made_by, scale)]
    return [*before, Job(recipe, ((),), (study.name,), box, folder=weights, cell=False, scale=scale, source=maker)]


def _merged(first: Job, second: Job) -> Job:
    """One model for two cells: everything either asks, the longer time box."""
    return replace(
        first,
        asks=tuple(dict.fromkeys(first.asks + second.asks)),
        studies=tuple(dict.fromkeys(first.studies + second.studies)),
        picture=first.picture or second.picture,
        folder=first.folder or second.folder,
        cell=first.cell or second.cell,
        minutes=0.0 if 0.0 in (first.minutes, second.minutes) else max(first.minutes, second.minutes),
    )
