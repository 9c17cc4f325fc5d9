"""A run describes itself on the console: before the first iteration, and after the last one."""

from __future__ import annotations

from macmpi import many
from macmpi.account import Account
from macmpi.console import decimals, duration
from macmpi.data.dataset import Dataset
from macmpi.plan.plan import Plan
from macmpi.results.scores import Labels, Numbers
from macmpi.state import Errors, State
from macmpi.training.best import Best


def describe(plan: Plan, data: Dataset, ranks: int, account: Account) -> str:
    """Says what is trained, and how."""
    chain = plan.chain
    sizes = "-".join(str(n) for n in chain.layer_sizes)
    kind = "classifier" if plan.resolved.loss.labels else "autoencoder" if data.autoencoder else "regression"
    line = (
        f"macmpi: {sizes} {kind}, {chain.existing:,} weights, "
        f"{plan.n_train:,} training and {many(plan.n_val, 'validation point')}, {many(ranks, 'rank')}"
    )
    if plan.has_basis:
        line += "\n  E1 train holds the ridge on the linear weights, as in eq. (6)"
    line += f"\n  {account.how}"
    return line


def closing(
    state: State,
    errors: Errors,
    account: Account,
    best: Best,
    scores: Numbers | Labels | None = None,
    diverged: bool = False,
) -> list[str]:
    """Says how the run ended, which weights a model predicts with, and their scores at the validation points."""
    reason = {"converged": account.settled, "max_iterations": "the last iteration allowed"}
    head = "went wrong" if diverged else "finished"
    why = reason.get(state.finished, state.finished) or "stopped"
    lines = [
        f"{head} ({why}) after {many(state.iteration, 'iteration')}, {duration(state.seconds)} of training",
        *_errors(account.end + (", the best" if best.last else ""), errors),
    ]
    if best.constant:
        lines.append("  nothing better than a constant was learnt from these points: the model predicts that constant")
    elif not best.last:
        lines += _errors(f"the best, iteration {best.iteration}", best.errors)
    own = scores.lines() if scores else []
    return lines + [f"  {'' if i else 'validation points':28s} {line}" for i, line in enumerate(own)]


def _errors(name: str, errors: Errors) -> list[str]:
    lines = [f"  {name:28s} E1 train {decimals(errors.train):>9}   validation {decimals(errors.validation):>9}"]
    if errors.wrong_train is not None and errors.wrong_validation is not None:
        lines.append(
            f"  {'  misclassified':28s}    train {errors.wrong_train:9.2%}   validation {errors.wrong_validation:9.2%}"
        )
    if errors.zeros is not None:
        lines.append(f"  {'  weights that are 0':28s} {errors.zeros:.1%} of those under l1 or group_lasso")
    return lines
