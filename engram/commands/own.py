"""Commands for a person's own pictures."""

from __future__ import annotations

import sys

from engram import flags
from engram.errors import EngramError


def predict(
    images: flags.Images,
    support: flags.Support = None,
    model: flags.Remembered = None,
    weights: flags.Weights = None,
    engine: flags.Engine = None,
    transductive: flags.Switch = False,
    reject_below: flags.Reject = None,
    json: flags.Switch = False,
    csv: flags.Switch = False,
    html: flags.OptionalPage = None,
    device: flags.Device = "cpu",
    trust_code: flags.TrustCode = False,
) -> None:
    """Say which class each picture is of, from a few examples of each class or from what a model remembers.

    Pictures that cannot be read are told at the end and stop nothing.

    Args:
        images: image files, or folders that are searched for them
        support: folder with one folder of example pictures for each class
        model: folder that engram remember wrote, in place of --support
        transductive: let the pictures inform each other, where the engine can
        json: write JSON with the probabilities of every class
        csv: write CSV with one column for each class
        html: page with the pictures, answers, remembered pictures that look alike, and a map of the memory
    """
    from engram.classifier.folders import answer_with, ask, find_pictures
    from engram.models.build import trusting_code

    if json and csv:
        raise EngramError("--json and --csv are two forms of one answer: choose one")
    if html is not None:
        from engram.page.answers import check_page, write_page

        check_page(html)
    with trusting_code(trust_code):
        classifier = answer_with(model, support, engine, weights, transductive, reject_below, device, _left_out)
    answers = ask(classifier, find_pictures(images))
    if json or csv:
        print(answers.to_json() if json else answers.to_csv(), end="\n" if json else "")
    else:
        from engram.report.rows import answers_table

        print(answers_table(answers.rows()).text())
    if html is not None:
        write_page(html, classifier, answers)
    for place, (_, why) in enumerate(answers.unreadable):
        _left_out(place, why)
    if not json:
        print(f"confidence: {answers.confidence}", file=sys.stderr)


def suggest(
    images: flags.Images,
    support: flags.Support = None,
    model: flags.Remembered = None,
    count: flags.Count = 20,
    weights: flags.Weights = None,
    engine: flags.Engine = None,
    device: flags.Device = "cpu",
    trust_code: flags.TrustCode = False,
) -> None:
    """Say which pictures to label next: those whose labels would teach most, none much like another.

    Args:
        images: image files without labels, or folders that are searched for them
        support: folder with one folder of example pictures for each class
        model: folder that engram remember wrote, in place of --support
        count: pictures to suggest
    """
    from engram.classifier.folders import answer_with, ask, find_pictures
    from engram.classifier.suggesting import suggest
    from engram.models.build import trusting_code
    from engram.report.rows import answers_table

    with trusting_code(trust_code):
        classifier = answer_with(model, support, engine, weights, False, None, device, _left_out)
    answers = ask(classifier, find_pictures(images))
    rows = answers.rows()
    assert answers.seen is not None
    print(answers_table([rows[place] for place in suggest(classifier, answers.seen, count)]).text())
    for place, (_, why) in enumerate(answers.unreadable):
        _left_out(place, why)
    print(f"confidence: {answers.confidence}", file=sys.stderr)


def _left_out(place: int, why: str) -> None:
    print(f"left out: {why}", file=sys.stderr)


def remember(
    model: flags.Target,
    support: flags.GivenSupport,
    weights: flags.Weights = None,
    engine: flags.Engine = None,
    trust_code: flags.TrustCode = False,
) -> None:
    """Add pictures to what a model remembers: of known classes, of new ones, or both. A new folder starts a new model.

    Pictures that cannot be read are told and stop nothing.

    Args:
        model: folder of the model
        support: folder with one folder of example pictures for each class
    """
    from engram.classifier.folders import remember_more
    from engram.models.build import trusting_code

    with trusting_code(trust_code):
        remembered = list(remember_more(model, support, engine, weights, _left_out))
    for name, count, before in remembered:
        new = f", {count - before} of them new" if before < count and before else ""
        print(f"{name}: {count} picture{'s' * (count != 1)}{new}")


def forget(model: flags.Target, name: flags.ClassName) -> None:
    """Forget a class of a model and every picture of it.

    Args:
        model: folder of the model
        name: the class
    """
    from engram.classifier.folders import forget_class

    rest = forget_class(model, name)
    print(f"{name} is forgotten; {rest} class{'es remain' if rest != 1 else ' remains'}")


def demo(host: flags.Host = "127.0.0.1", port: flags.Port = None, browser: flags.Switch = True) -> None:
    """Open a page on this computer: name classes, drop pictures in, see answers, carry the memory on.

    Args:
        browser: do not open a browser window
    """
    from engram.page.app import serve

    serve(host, port, browser)
