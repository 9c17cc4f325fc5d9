"""Refuse what cannot heed the weights of points: one sentence each, with a remedy."""

from __future__ import annotations

from macmpi import UsageError
from macmpi.config import NESTED, Config
from macmpi.plan.fitted import fitter
from macmpi.plan.plan import Plan

STARTS = {
    "elastic_embedding": ("places points by their neighbours alone", '"pca" or "uniform"'),
    "staged": ("finds its filters and words by k-means, which does not weigh points", '"uniform"'),
}
"""Starts that leave weights out: why, and what to use instead."""

WITHOUT = "or leave the weights out"


def check_weighted(config: Config, plan: Plan) -> None:
    """Refuse a config for data whose training points have weights, where a part of it would not heed them.

    Raises UsageError.  Collective: no.
    """
    choices, said = plan.choices, "the data have weights"
    if config.selection.criterion != "none":
        raise UsageError(
            f'selection.criterion = "{config.selection.criterion}" counts points as alike, and {said}; use criterion = '
            f'"none", {WITHOUT}'
        )
    if config.start.method in STARTS:
        why, others = STARTS[config.start.method]
        raise UsageError(
            f'start.method = "{config.start.method}" {why}, and {said}; use start.method = {others}, {WITHOUT}'
        )
    if not all(trainer.copies for trainer in choices.trainers.values()):
        raise UsageError(
            f"a layer's centres are found by a trainer (model.centres) that does not weigh points, and {said}; use "
            f'model.centres = "subset", {WITHOUT}'
        )
    if config.method.name in NESTED:
        return
    for k, regression in enumerate(choices.regressions, start=1):
        if regression.by_fitter and not getattr(fitter(regression.name), "weighs", False):
            raise UsageError(
                f'the fitter "{regression.name}" of segment {k} does not weigh points, and {said}; use a layer of '
                f"another kind, {WITHOUT}"
            )
        if not regression.by_fitter and not regression.solver.weighs:
            raise UsageError(
                f'w_step.solver = "{regression.name}" does not say that it weighs points, and {said}; use '
                f'w_step.solver = "auto", {WITHOUT}'
            )
