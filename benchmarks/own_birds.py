"""`FewShotClassifier()` on birds: what the box says of packaged encoders, and how good they are.

Called by ``python -m benchmarks.own_images fit imagenet`` and ``test imagenet``, or ``imagenet-lite1``. Birds 161 to
180 of CUB-200-2011 and the validation classes of miniImageNet are fitted on, classes 181 to 200 are tested;
birds-40x24.zip and miniimagenet-val.zip lie in ENGRAM_DATA. Nothing is trained on them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.classifier import opening
from engram.classifier.box import Boxed, box
from engram.classifier.calibration import calibrate
from engram.classifier.engine import Engine, likeness
from engram.classifier.seeing import see_pictures
from engram.data.datasets import data_folder
from engram.errors import EngramError
from engram.evaluation.metrics import Outcomes, interval, summarise
from engram.methods import METHODS

BIRDS, PHOTOGRAPHS = "birds-40x24.zip", "miniimagenet-val.zip"
FITTED_ON, TESTED_ON = range(161, 181), range(181, 201)
GOOSE = "n01855672"
"""a class of miniImageNet that is a bird"""
WAYS, SHOTS, QUERIES = (2, 5, 10, 20, 36), (1, 2, 5, 10), 12
ASKED_TOGETHER = (1, 3, QUERIES)
"""queries of each class that inform each other in transductive answers"""
CHOSEN_AT = 5
PER_CLASS = 60
"""pictures of each class of miniImageNet that take part"""
SMALL = 84
"""side of miniImageNet's pictures: birds are made as small where they are told from them"""


class Seen(NamedTuple):
    features: Tensor
    """(n, d)"""
    classes: tuple[np.ndarray, ...]
    """rows of each class"""


class Task(NamedTuple):
    support: Tensor
    labels: Tensor
    query: Tensor
    truth: Tensor
    foreign: Tensor
    """queries of as many other classes, as far as there are some"""


def pictures(archive: str, chosen: Sequence[int] | None = None) -> dict[str, list[Image.Image]]:
    """Class -> pictures; of birds those whose number is ``chosen``, of miniImageNet the first of each class."""
    folder = data_folder()
    if folder is None or not (folder / archive).is_file():
        raise EngramError(f"{archive} is not in {folder}: set ENGRAM_DATA to the folder that has it")
    found: dict[str, list[Image.Image]] = {}
    with zipfile.ZipFile(folder / archive) as opened:
        for name in sorted(n for n in opened.namelist() if n.endswith(".jpg")):
            kind = name.split("/")[-2] if archive == BIRDS else name.split("/")[-1][:9]
            if (chosen is None or int(kind[:3]) in chosen) and len(found.setdefault(kind, [])) < PER_CLASS:
                found[kind].append(Image.open(io.BytesIO(opened.read(name))).convert("RGB"))
    return {kind: images for kind, images in found.items() if images}


def seen(engine: Engine, classes: dict[str, list[Image.Image]], small: bool = False) -> Seen:
    images = [_shrunk(image) if small else image for of_class in classes.values() for image in of_class]
    features = see_pictures(engine, images)
    assert features is not None
    ends = np.cumsum([len(of_class) for of_class in classes.values()])
    return Seen(features, tuple(np.split(np.arange(len(images)), ends[:-1])))


def _shrunk(image: Image.Image) -> Image.Image:
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((SMALL, SMALL), Image.Resampling.BILINEAR, (left, top, left + side, top + side))


def tasks(found: Seen, n_way: int, shots: int, count: int, queries: int = QUERIES, seed: int = 17) -> Iterator[Task]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        drawn = rng.permutation(len(found.classes))[: 2 * n_way]
        rows = [rng.permutation(found.classes[c])[: shots + queries] for c in drawn]
        support, query = (torch.from_numpy(np.stack([part(r) for r in rows])) for part in _parts(shots))
        yield Task(
            found.features[support[:n_way].flatten()],
            torch.arange(n_way).repeat_interleave(shots),
            found.features[query[:n_way].flatten()],
            torch.arange(n_way).repeat_interleave(query.shape[1]),
            found.features[query[n_way:].flatten()],
        )


def _parts(shots: int) -> tuple[Any, Any]:
    return (lambda rows: rows[:shots]), (lambda rows: rows[shots:])


def outcomes(engine: Engine, asked: Sequence[Task], own: bool = True) -> Outcomes:
    """Answers as `FewShotClassifier` gives them; ``own`` = False leaves pictures held out aside."""
    answers = []
    for task in asked:
        n_way = int(task.labels.max()) + 1
        sure = calibrate(engine, task.support, task.labels, n_way, task.query) if own else None
        answers.append(engine.answer(task.support, task.labels, task.query, n_way, calibration=sure).log_probs)
    return Outcomes(torch.stack([t.truth for t in asked])[:, None].numpy(), torch.stack(answers).exp()[:, None].numpy())


def figures(found: Outcomes) -> dict[str, float]:
    return {name: summarise(found)[name] for name in ("accuracy", "interval", "ece", "nll")}


def centroids(asked: Sequence[Task]) -> dict[str, float]:
    """The plain nearest centroid by cosine, to be set beside."""
    right = []
    for task in asked:
        chosen = likeness(task.support, task.labels, task.query, int(task.labels.max()) + 1).argmax(-1)
        right.append(float((chosen == task.truth).float().mean()))
    return {"accuracy": float(np.mean(right)), "interval": interval(np.array(right))}


def fit(kind: str, count: int) -> dict[str, Any]:
    """Constants of the box and the table of engines, from classes that are not tested."""
    from benchmarks.own_images import fitted_temperature, logistic, write_box

    plain = {t: replace(opening.open_engine(None, kind, None, t, "cpu"), temperatures={}) for t in (False, True)}
    shown = pictures(BIRDS, FITTED_ON), pictures(PHOTOGRAPHS)
    parts, mixed = [seen(plain[False], classes) for classes in shown], seen(plain[False], shown[0] | shown[1])
    temperatures: dict[str, dict[str, list[float]]] = {"content_memory": {}, "content_memory transductive": {}}
    familiarity: dict[str, list[float]] = {}
    for n_way in WAYS:
        for shots in SHOTS:
            sources = parts if n_way <= len(shown[0]) else [mixed]  # neither has as many classes
            asked = [list(tasks(p, min(n_way, len(p.classes)), shots, max(12, count // n_way))) for p in sources]
            key = f"{n_way}x{shots}"
            found = [outcomes(plain[False], part, own=False) for part in asked]
            temperatures["content_memory"][key] = [fitted_temperature(found)]
            for together in ASKED_TOGETHER:
                found = [outcomes(plain[True], [_fewer(t, together) for t in part], own=False) for part in asked]
                temperatures["content_memory transductive"][f"{key}x{together}"] = [fitted_temperature(found)]
            scores = [_likenesses(plain[False], t) for part in asked for t in part if len(t.foreign)]
            known, strange = (np.concatenate(s) for s in zip(*scores, strict=True)) if scores else ([], [])
            familiarity[key] = logistic(known, strange) if scores else familiarity[f"10x{shots}"]
            print(key, temperatures["content_memory"][key], familiarity[key], flush=True)
    asked = {shots: list(tasks(parts[0], 5, shots, count)) for shots in (1, CHOSEN_AT)}
    entry = replace(box()[kind], temperatures=temperatures, familiarity=familiarity)
    table, others = _engines(kind, replace(entry, temperatures={}), asked)
    entry = replace(entry, temperatures={**others, **temperatures})
    write_box(kind, entry)
    protocols = {str(s): {"n_way": 5, "n_query": QUERIES, "n_shot": s} for s in asked}
    common = {"chosen": entry.engine, "chosen_at": CHOSEN_AT, "protocols": protocols, "box": asdict(entry)}
    return {"engines": table, **common}


def _fewer(task: Task, queries: int) -> Task:
    """The same task, asked about the first queries of each class alone."""
    first = torch.arange(len(task.query)) % QUERIES < queries
    return task._replace(query=task.query[first], truth=task.truth[first])


def _likenesses(engine: Engine, task: Task) -> tuple[np.ndarray, np.ndarray]:
    both = torch.cat([task.query, task.foreign])
    alike = engine.compare(task.support, task.labels, both, int(task.labels.max()) + 1)[1].amax(-1).numpy()
    return alike[: len(task.query)], alike[len(task.query) :]


def _engines(kind: str, entry: Boxed, asked: dict[int, list[Task]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Figures of every method that needs no training, on birds alone, and its temperatures there."""
    from benchmarks.own_images import fitted_temperature, write_box

    write_box(kind, entry)
    table, temperatures = {}, {}
    for name, transductive in [(n, t) for n in METHODS for t in (False, True)]:
        try:
            engine = opening.open_engine(name, kind, None, transductive, "cpu")
        except EngramError:
            continue  # has to be trained on tasks first
        if engine.by_features and (engine.method.card.transductive or not transductive):
            label = f"{name} transductive" if transductive else name
            found = {str(s): outcomes(engine, t, own=False) for s, t in asked.items()}
            table[label] = {s: figures(o) for s, o in found.items()}
            temperatures[label] = {s: [fitted_temperature([o])] for s, o in found.items()}
            print(label, {s: round(100 * f["accuracy"], 2) for s, f in table[label].items()}, flush=True)
    return table, temperatures


def test(kind: str, count: int) -> dict[str, Any]:
    """The default on classes nothing was chosen on."""
    from benchmarks.own_images import area_under_roc

    engine, joint = (opening.open_engine(None, kind, None, t, "cpu") for t in (False, True))
    tested = pictures(BIRDS, TESTED_ON)
    birds, plain = seen(engine, tested), replace(engine, temperatures={})
    result: dict[str, Any] = {"engine": engine.recipe.method, "protocols": {}, "shots": {}, "centroids": {}, "ways": {}}
    for shots in (1, CHOSEN_AT):
        asked = list(tasks(birds, 5, shots, count, 15))
        rows = {"default": outcomes(engine, asked), "temperature 1": outcomes(plain, asked, own=False)}
        result["shots"][str(shots)] = {
            n: figures(o) for n, o in {**rows, "transductive": outcomes(joint, asked)}.items()
        }
        result["centroids"][str(shots)] = centroids(asked)
        result["protocols"][str(shots)] = {"n_way": 5, "n_query": 15, "n_shot": shots}
        print(shots, result["shots"][str(shots)], result["centroids"][str(shots)], flush=True)
    every = seen(engine, {**pictures(BIRDS, FITTED_ON), **tested})
    for found, n_way in ((birds, 2), (birds, 10), (birds, 20), (every, 40)):
        asked = list(tasks(found, n_way, CHOSEN_AT, max(20, count // n_way), 15))
        both = {"default": figures(outcomes(engine, asked)), "transductive": figures(outcomes(joint, asked))}
        result["ways"][str(n_way)] = {**both, "centroids": centroids(asked)}
        print(n_way, result["ways"][str(n_way)], flush=True)
    others = {kind: images for kind, images in pictures(PHOTOGRAPHS).items() if kind != GOOSE}
    small, elsewhere = seen(engine, tested, small=True), seen(engine, others).features
    areas: dict[str, list[float]] = {"auroc": [], "auroc_of_probability": [], "auroc_no_birds": []}
    for task, tiny in zip(*(tasks(part, 5, CHOSEN_AT, count, 15) for part in (birds, small)), strict=True):
        own, other = (_asked(engine, task, part) for part in (task.query, task.foreign))
        areas["auroc"].append(area_under_roc(own.familiarity.numpy(), other.familiarity.numpy()))
        areas["auroc_of_probability"].append(area_under_roc(*(a.log_probs.amax(-1).numpy() for a in (own, other))))
        known, strange = (_asked(engine, tiny, part).familiarity.numpy() for part in (tiny.query, elsewhere))
        areas["auroc_no_birds"].append(area_under_roc(known, strange))
    means = {name: float(np.mean(values)) for name, values in areas.items()}
    result["rejection"] = {**means, "interval": interval(np.array(areas["auroc"]))}
    result["rounds"] = _rounds(engine, birds, count)
    print(result["rejection"], result["rounds"], flush=True)
    return result


def _asked(engine: Engine, task: Task, query: Tensor) -> Any:
    sure = calibrate(engine, task.support, task.labels, 5)
    return engine.answer(task.support, task.labels, query, 5, calibration=sure)


def _rounds(engine: Engine, found: Seen, count: int) -> list[float]:
    """Accuracy after 1, 2, ... 10 rounds of one more picture of each of 5 classes; the same queries."""
    right = np.zeros(10)
    for task in tasks(found, 5, 10, count, 14):
        number = torch.arange(10).repeat(5)
        for r in range(10):
            chosen = engine.answer(task.support[number <= r], task.labels[number <= r], task.query, 5).log_probs
            right[r] += float((chosen.argmax(-1) == task.truth).float().mean())
    return (right / count).tolist()
