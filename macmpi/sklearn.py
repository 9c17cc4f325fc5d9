"""Estimators with the interface of scikit-learn: MACRegressor, MACClassifier, MACAutoencoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesOutMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted, validate_data

from macmpi import UsageError, caution, listed, many, shown
from macmpi.api.fit import INTERRUPTED, STREAM, fit
from macmpi.api.given import flat, keys_given, method_of
from macmpi.api.heard import OTHERS, in_python
from macmpi.data.checks import as_array, as_flag, as_inputs, is_foreign
from macmpi.typing import Array

MOST = 2**31 - 1
"""A seed that is drawn from a random state is below this number."""

PATIENT = {"mac": "penalty", "stochastic": "stochastic"}
"""The tables in which these methods have the key `patience`; all other methods have it in [baseline]."""

OWN = {"data.validation": "validation_fraction", "data.seed": "random_state", "start.seed": "random_state"}
OWN |= {"run.max_iterations": "max_iter", STREAM: "partial_fit"}
"""Keys of a config that are arguments of an estimator instead, and the names of these arguments."""


@dataclass(eq=False, repr=False)
class _Net(BaseEstimator):  # type: ignore[misc]
    """The base of the three estimators, with their common arguments and training by `macmpi.fit`."""

    loss: ClassVar[str] = "squared"

    hidden: Any = "auto"
    layers: Any = "auto"
    _: KW_ONLY
    max_iter: int = 400
    early_stopping: bool = True
    validation_fraction: float = 0.2
    max_time: float | None = None
    warm_start: bool = False
    config: Any = None
    random_state: Any = None
    ranks: int | None = None
    verbose: bool = False

    def _train(self, X: Array, Y: Array | None, weights: Any, stream: bool = False, labels: Any = None) -> Self:
        """Trains `model_` on all points or, with `stream`, on a further piece of a stream.  Raises ValueError.

        weights (N,): the weights of the points, or None; points of weight 0 are left out, except in a stream.
        labels (C,): all labels of a classifier, which become `classes_`; Y then holds their numbers.
        """
        w = weights_of(weights, X)
        if w is not None and not stream:
            X, Y, w = X[w > 0.0], None if Y is None else Y[w > 0.0], w[w > 0.0]
            if len(w) < 3:
                raise ValueError(f"sample_weight: {many(len(w), 'row')} with a weight above 0; at least 3 are needed")
        with self._in_own_words():
            settings = self._settings(X.shape[1], Y is None, stream)
            self.model_ = fit(
                X,
                Y,
                hidden=self.hidden,
                layers=self.layers,
                validation=self.validation_fraction,
                weights=w,
                classes=np.arange(len(labels)) if stream and labels is not None else None,
                config=settings,
                start=getattr(self, "model_", None) if stream or as_flag(self.warm_start, "warm_start") else None,
                seed=_seed_of(self.random_state),
                max_time=float("inf") if self.max_time is None else self.max_time,
                ranks=self.ranks,
                verbose=self.verbose,
            )
        iterations = [record for record in self.model_.history if record["phase"] in ("iteration", "selection")]
        self.loss_curve_, self.validation_curve_ = ([r[key] for r in iterations] for key in ("E1_train", "E1_val"))
        self.n_iter_ = len(iterations)  # refits on all points are not counted
        if labels is not None:
            self.classes_ = labels
        if self.model_.ended == INTERRUPTED:
            raise KeyboardInterrupt("the fit was interrupted; model_ has the best weights so far")
        return self

    def _settings(self, columns: int, autoencoder: bool, stream: bool) -> dict[str, Any]:
        """Makes the config of a fit, "table.key" -> value, from the arguments of the estimator.  Raises ValueError.

        columns: the number of columns of X; autoencoder: whether there are no targets; stream: whether it is a fit to a
            piece of a stream.
        """
        given, early = self._keys(), as_flag(self.early_stopping, "early_stopping")
        for key, argument in OWN.items():
            if key in given:
                raise ValueError(f"config: {key} is {argument} of {type(self).__name__}; give it there")
        if not np.isscalar(self.validation_fraction):
            raise ValueError(
                f"validation_fraction = {shown(self.validation_fraction)}: a share of the points is needed"
            )
        settings = {STREAM: stream, **({} if stream else {"run.max_iterations": self.max_iter}), **given}
        loss = settings.get("model.loss", "auto")
        loss = settings["model.loss"] = self.loss if loss == "auto" else loss
        if (loss == "cross_entropy") is not isinstance(self, ClassifierMixin):
            remedy = "leave it out" if isinstance(self, ClassifierMixin) else "use MACClassifier"
            raise ValueError(f'config: model.loss = "{loss}" is none of a {type(self).__name__}; {remedy}')
        if early or stream:
            return settings
        method = method_of(settings, self.hidden, self.layers, columns, autoencoder)
        patience = f"{PATIENT.get(method, 'baseline')}.patience"
        if patience in given:
            raise ValueError(f"config: {patience} is not read with early_stopping=False; leave one of them out")
        settings["method.name"] = method
        if method != "alternating":  # it has no patience
            settings[patience] = max(self.max_iter, 1) if isinstance(self.max_iter, Integral) else 1
        return settings

    def _keys(self) -> dict[str, Any]:
        """Returns the argument `config` as "table.key" -> value.  Raises ValueError."""
        if not isinstance(self.config, dict | None):
            raise ValueError('config: a mapping is needed, as in {"method.name": "mac"}')
        with self._in_own_words():
            return flat(self.config)

    @contextmanager
    def _in_own_words(self) -> Iterator[None]:
        """Turns a UsageError of its block into a ValueError whose message names the arguments of the estimator."""
        own = {"the arguments of fit": f"the arguments of {type(self).__name__}", "start.model": "warm_start"}
        token = OTHERS.set(OWN | own | {"model.loss": "model.loss", 'model.loss = "cross_entropy"': "MACClassifier"})
        try:
            yield
        except UsageError as error:
            raise ValueError(in_python(str(error), keys_given(self.config))) from error
        finally:
            OTHERS.reset(token)

    def _points(self, X: Any) -> Array:
        """Checks that points to be predicted have the columns of the fit, and returns them.  Raises ValueError.

        Callers use it before they read `model_`, so that an estimator that is not fitted says so.
        """
        check_is_fitted(self, "model_")
        return validate_data(self, *self._of_numpy(X=X), reset=False, accept_sparse="csr")

    def _of_numpy(self, **given: Any) -> list[Any]:
        """Converts arguments that are arrays of other libraries to NumPy's.  given: by name.  Raises ValueError."""
        with self._in_own_words():
            return [as_array(A, name) if is_foreign(A) else A for name, A in given.items()]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class MACRegressor(RegressorMixin, _Net):  # type: ignore[misc]
    """Regression, y ~ f(X), by a deep net.

    hidden, layers: the units of the hidden layers, and their kind.
    early_stopping: the fit ends once the error of held-out points (the share validation_fraction) stops falling.
    max_iter, max_time: the fit ends after this number of iterations, or of seconds.
    warm_start: a further fit begins with the present weights.
    config, ranks: further settings of `macmpi.fit`, and the number of processes.
    After a fit it has model_ (`macmpi.Model`), n_iter_, and for each iteration loss_curve_ and validation_curve_ (E1
    per training point and per validation point).
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits the net.  X: (N, D), y: (N,) or (N, L).  sample_weight: (N,), see `macmpi.fit`.  Raises ValueError."""
        return self._train(*self._checked(X, y), sample_weight)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains by one pass over a further piece of a stream.  Its arguments are those of `fit`.

        Raises ValueError.
        """
        return self._train(*self._checked(X, y, not hasattr(self, "model_")), sample_weight, stream=True)

    def _checked(self, X: Any, y: Any, reset: bool = True) -> tuple[Array, Array]:
        """Returns X and y as arrays.  Raises ValueError.  reset: whether an earlier fit may have had other columns."""
        X, y = self._of_numpy(X=X, y=y)
        rules: dict[str, Any] = {"ensure_min_samples": 2, "accept_sparse": "csr"}
        if self._keys().get("loss.missing") is True:
            of_y = {"ensure_2d": False, "ensure_all_finite": "allow-nan"}
            X, y = validate_data(self, X, y, reset, validate_separately=(rules, of_y))
            check_consistent_length(X, y)
        else:
            X, y = validate_data(self, X, y, reset, multi_output=True, y_numeric=True, **rules)
        return X, y

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Computes R^2 from the targets that are known, as its mean over the outputs.

        An output with fewer than two known targets is left out with a warning.  Raises ValueError if all are.
        """
        found = self.predict(X), *self._of_numpy(y=y)
        predicted, y = (np.asarray(A, dtype=np.float64).reshape(len(found[0]), -1) for A in found)
        if not np.isnan(y).any():
            return float(r2_score(y, predicted, sample_weight=sample_weight))
        weights, known = None if sample_weight is None else np.asarray(sample_weight), ~np.isnan(y)
        few = [str(i) for i, count in enumerate(known.sum(axis=0), start=1) if count < 2]
        if len(few) == y.shape[1]:
            raise ValueError("score: no output of y has two targets that are known, and R^2 needs two; give more rows")
        if few:
            caution(f"score: R^2 needs two targets that are known, which y lacks of output {listed(few)}: left out")
        scores = [
            r2_score(true[seen], own[seen], sample_weight=None if weights is None else weights[seen])
            for true, own, seen in zip(y.T, predicted.T, known.T, strict=True)
            if seen.sum() > 1
        ]
        return float(np.mean(scores))

    def predict(self, X: Any) -> Array:
        """Computes f(X): (N,) or (N, L), as y was."""
        points = self._points(X)
        return self.model_.predict(points)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False)
class MACClassifier(ClassifierMixin, _Net):  # type: ignore[misc]
    """Classification by a deep net with cross-entropy.  Its other arguments and attributes are those of MACRegressor.

    class_weight: {label: weight}, 1 for a missing label; or "balanced", which gives all classes the same total
    weight.  The weights of the points are multiplied by it.
    classes_: the labels, ascending.
    """

    loss: ClassVar[str] = "cross_entropy"
    _: KW_ONLY
    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fits the net.  X: (N, D), y: (N,) labels.  sample_weight: (N,), see `macmpi.fit`.  Raises ValueError."""
        X, y = self._labelled(X, y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"all points are of one class ({classes[0]!r}): two classes are needed to learn")
        known: Any = getattr(self, "classes_", classes) if self.warm_start else classes
        if known.tolist() != classes.tolist():
            raise ValueError(
                f"warm_start: the net knows the classes {known.tolist()!s:.60}, and y holds "
                f"{classes.tolist()!s:.60}; fit a new estimator"
            )
        w = weights_of(sample_weight, X)
        w = self._weighed(X, numbers, w, classes.tolist(), np.bincount(numbers, w))
        if w is not None and not np.ptp(numbers[w > 0.0]):
            raise ValueError("sample_weight or class_weight: all points with a weight above 0 are of one class")
        return self._train(X, numbers, w, labels=classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Trains by one pass over a further piece of a stream.  Its other arguments are those of `fit`.

        classes: all labels that any piece may hold; the first call needs them.  Raises ValueError.
        """
        before = dict(self.__dict__)
        _check_partial_fit_first_call(self, classes)
        try:
            X, y = self._labelled(X, y, not hasattr(self, "model_"))
            numbers = np.searchsorted(self.classes_, y) % len(self.classes_)
            if len(strange := np.setdiff1d(y, self.classes_)):
                raise ValueError(f"y contains previously unseen labels: {strange.tolist()!s:.60}")
            if isinstance(self.class_weight, str):
                raise ValueError(f"class_weight '{self.class_weight}' is not supported for partial_fit; give a dict")
            w = self._weighed(X, numbers, weights_of(sample_weight, X), self.classes_.tolist())
            return self._train(X, numbers, w, stream=True, labels=self.classes_)
        except ValueError:
            self.__dict__ = before
            raise

    def _labelled(self, X: Any, y: Any, reset: bool = True) -> tuple[Array, Array]:
        """Checks X and labels y as `MACRegressor._checked` does, and returns them as arrays.  Raises ValueError."""
        if y is not None:
            with self._in_own_words():
                X, y = *self._of_numpy(X=X), as_array(y, "y")
        X, y = validate_data(self, X, y, reset, ensure_min_samples=2, accept_sparse="csr")
        check_classification_targets(y)
        return X, y

    def _weighed(self, X: Array, numbers: Array, w: Any, labels: list[Any], counts: Any = None) -> Array | None:
        """Multiplies the weights w of points by the weights of their classes; labels[numbers] (N,) are their labels."""
        if self.class_weight is None:
            return w
        each = self._weights_of_classes(labels, counts)
        own = weights_of([each[n] for n in numbers], X, "class_weight")
        return w if own is None else weights_of(own if w is None else own * w, X, "class_weight")

    def _weights_of_classes(self, labels: list[Any], counts: Any = None) -> Any:
        """Returns the weights that class_weight gives to the C classes, by the rules of scikit-learn.

        A class that the dict lacks has weight 1.  counts (C,): the total weight of each class's points.  Raises
        ValueError, for instance where the dict lacks a class and also has a label that is no class.
        """
        given = self.class_weight
        if isinstance(given, str) and given == "balanced":
            return counts.sum() / (np.count_nonzero(counts) * np.where(counts > 0.0, counts, 1.0))
        if not isinstance(given, dict):
            raise ValueError(
                "The 'class_weight' parameter of MACClassifier must be an instance of 'dict', a str among {'balanced'} "
                f"or None. Got {shown(given)} instead."
            )
        lacks = [label for label in labels if label not in given]
        if others := [label for label in given if label not in labels] if lacks else []:
            raise ValueError(f"The classes, {lacks!s:.60}, are not in class_weight, which has {others!s:.60}")
        return [given.get(label, 1.0) for label in labels]

    def predict_proba(self, X: Any) -> Array:
        """Computes the probability of each class: (N, C); 0 for one whose points all had weight 0 at the fit."""
        points = self._points(X)
        found = self.model_.probabilities(points)
        whole = np.zeros((len(found), len(self.classes_)))
        whole[:, self.model_.classes] = found
        return whole

    def predict_log_proba(self, X: Any) -> Array:
        """Computes the logarithms of `predict_proba`: (N, C)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Array:
        """Computes the most probable label of each point: (N,)."""
        points = self._points(X)
        return self.classes_[self.model_.predict(points)]


class MACAutoencoder(NamesOutMixin, TransformerMixin, _Net):  # type: ignore[misc]
    """Dimension reduction by a deep net that reconstructs X from a code.

    The code is the hidden layer with the fewest units, or the fewest bits if it gives words.  The class has the
    arguments and attributes of MACRegressor.
    """

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fits the net.  X: (N, D); y is not read.  sample_weight: (N,), see `macmpi.fit`.  Raises ValueError."""
        return self._encoded(X, sample_weight)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Trains by one pass over a further piece of a stream.  X, sample_weight: as in `fit`.  Raises ValueError."""
        return self._encoded(X, sample_weight, stream=True)

    def _encoded(self, X: Any, weights: Any, stream: bool = False) -> Self:
        rules: dict[str, Any] = {"ensure_min_samples": 2, "accept_sparse": "csr"}
        reset = not (stream and hasattr(self, "model_"))
        self._train(validate_data(self, *self._of_numpy(X=X), reset=reset, **rules), None, weights, stream)
        self._n_features_out = self.model_.chain.maps[self.model_.code - 1].n_out
        return self

    def transform(self, X: Any) -> Array:
        """Computes the codes (N, H) of points (N, D)."""
        points = self._points(X)
        return self.model_.encode(points)

    def inverse_transform(self, X: Any) -> Array:
        """Reconstructs points (N, D) from codes (N, H)."""
        check_is_fitted(self, "model_")
        with self._in_own_words():
            return self.model_.decode(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Computes R^2 of the reconstruction, in which each column is weighted by its variance."""
        points = np.asarray(as_inputs(self._points(X), "X"))
        found = self.model_.predict(points)
        return float(r2_score(points, found, sample_weight=sample_weight, multioutput="variance_weighted"))


def weights_of(sample_weight: Any, X: Array, name: str = "sample_weight") -> Array | None:
    """Checks the weights of points, and returns them as (N,), or None if all are 1.

    name: the name of the argument, for messages.  Raises ValueError unless they are finite, not negative and not all 0.
    """
    if sample_weight is None:
        return None
    try:
        w: Array = _check_sample_weight(as_array(sample_weight, name), X, ensure_non_negative=True)
    except (UsageError, TypeError, ValueError) as error:
        raise ValueError(f"{name}: {str(error).replace('sample_weight', name)}") from None
    if not np.isfinite(w).all() or not w.any():
        raise ValueError(f"{name}: {'a weight is not finite' if w.any() else 'all weights are 0'}")
    return None if (w == 1.0).all() else w


def _seed_of(random_state: Any) -> int:
    """Returns random_state as a seed: the number itself, or one drawn from a generator.  Raises ValueError."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    try:
        return int(check_random_state(random_state).randint(MOST))
    except (ValueError, TypeError):
        words = "None, a whole number from 0 on, or a numpy.random.RandomState is needed"
        raise ValueError(f"random_state = {shown(random_state)}: {words}") from None
