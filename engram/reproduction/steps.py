"""The commands of a job: features where it needs them, training or going on with it, and a bench for each question."""

from __future__ import annotations

from engram.recipes.protocols import Ask
from engram.reproduction.place import Place, checkpoint_state
from engram.reproduction.plan import Planned
from engram.studies.jobs import Job

Command = tuple[str, ...]


def commands_of(planned: Planned, place: Place) -> list[Command]:
    """``engram`` commands, in order; looked up where they run, so that a run goes on from what lies there."""
    job, commands = planned.job, []
    shared = _shared(job, place)
    if job.features and not place.features(job).exists():
        weights, out = job.recipe.backbone_weights, str(place.features(job))
        commands.append(("features", weights, out, *_data(place), "--device", place.device))
    if planned.train:
        commands.append(_train(planned, place, shared))
    commands += [_bench(job, ask, place, shared) for ask in planned.asks if ask or not planned.train]
    if job.picture and job.train and not job.features:
        picture = place.results.parent / "pictures" / f"{job.key}.npz"
        commands.append(("picture", str(place.folder(job)), str(picture), *_data(place), "--device", place.device))
    return commands


def _shared(job: Job, place: Place) -> Command:
    features = ("--features", str(place.features(job))) if job.features else ()
    note = ("--note", f"study {', '.join(job.studies)}")
    return (*_data(place), "--results", str(place.results), "--device", place.device, *features, *note)


def _data(place: Place) -> Command:
    return ("--data", str(place.data)) if place.data else ()


def _train(planned: Planned, place: Place, shared: Command) -> Command:
    job = planned.job
    folder = place.folder(job)
    box = ("--max-minutes", f"{job.minutes:g}", "--whole-run") if job.minutes else ()
    resume = ("--resume",) if checkpoint_state(folder) else ()
    no_test = () if () in planned.asks else ("--no-test",)
    seed = ("--seed", str(job.recipe.train.seed))
    return ("train", job.source, *seed, "--out", str(folder), *box, *resume, *no_test, *shared)


def _bench(job: Job, ask: Ask, place: Place, shared: Command) -> Command:
    model = (str(place.folder(job)),) if job.train else (job.recipe.method, "--recipe", job.source)
    changes: list[str] = []
    for key, value in ask:
        flag = f"--{key.replace('_', '-')}"
        changes += ([flag] if value else []) if isinstance(value, bool) else [flag, str(value)]
    return ("bench", *model, *changes, *shared)
