"""The classifier: a random forest whose probability of the fair class is f2 (Eq. f2)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from epymarl_fairtest.predictor.abstraction import Abstraction, abstraction, candidate_levels
from epymarl_fairtest.predictor.features import Scaling, features, scaling
from epymarl_fairtest.predictor.traces import Traces

if TYPE_CHECKING:  # importing scikit-learn takes two seconds, and strategies are listed in every --help
    from sklearn.ensemble import RandomForestClassifier

TREES = 100
SMALLEST_SAMPLE = 64  # episodes per tree at least, however rare the rarer class
CURVE = 200  # points of a ROC curve
RARE = 5  # a joint state in fewer episodes than this cannot fill a leaf: it only costs time


@dataclass(frozen=True)
class Predictor:
    """f2 and how far to trust it. `forest` is None where the labels hold a single class: f2 is constant."""

    abstraction: Abstraction
    scale: Scaling
    buckets: int
    columns: NDArray[np.int64]  # features the forest looks at
    forest: RandomForestClassifier | None
    constant: float  # f2 without a forest
    auc_abstract: float | None  # out of bag
    auc_full: float | None
    roc: dict[str, NDArray[np.float64]] = field(default_factory=dict)  # (points, 2): false and true alarms, out of bag

    def fair_probability(self, traces: Traces) -> NDArray[np.float64]:
        """P(fair | e) for each episode."""
        if self.forest is None or not len(traces):
            return np.full(len(traces), self.constant)
        matrix = features(traces, self.abstraction, self.scale, self.buckets)[:, self.columns]
        return votes(self.forest, matrix)

    def summary(self) -> dict[str, Any]:
        return {
            "auc_abstract": self.auc_abstract,
            "auc_full": self.auc_full,
            "d": self.abstraction.d,
            "joint_states": len(self.abstraction),
        }


def fit_predictor(
    traces: Traces, fair: NDArray[np.bool_], *, buckets: int, seed: int, d: float | None = None, workers: int = 1
) -> Predictor:
    """Train on labelled episodes. The level d, unless given, is the one with the best out-of-bag AUC."""
    scale = scaling(traces.received)
    levels = candidate_levels(traces.q) if d is None else [d]
    if fair.all() or not fair.any():
        coarse = abstraction(traces.q, levels[len(levels) // 2])
        return Predictor(coarse, scale, buckets, np.empty(0, np.int64), None, float(fair.all()), None, None)
    fits = []
    for level in levels:
        states = abstraction(traces.q, level)
        matrix, _ = frequent(features(traces, states, None, buckets))
        forest = _fit(matrix, fair, seed, workers)
        fits.append((out_of_bag_auc(forest, fair), states, roc(forest, fair)))
    auc_abstract, states, roc_abstract = max(fits, key=lambda fit: fit[0])
    matrix, columns = frequent(features(traces, states, scale, buckets))
    forest = _fit(matrix, fair, seed, workers)
    auc, curves = out_of_bag_auc(forest, fair), {"abstract": roc_abstract, "full": roc(forest, fair)}
    return Predictor(states, scale, buckets, columns, forest, float("nan"), auc_abstract, auc, curves)


def cross_validated_auc(
    traces: Traces, fair: NDArray[np.bool_], predictor: Predictor, *, full: bool, seed: int, folds: int = 5
) -> list[float]:
    """AUC-ROC per fold (the paper's RQ3-a), with the fairness features or without."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    matrix, _ = frequent(features(traces, predictor.abstraction, predictor.scale if full else None, predictor.buckets))
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(matrix, fair))
    forest = _forest(fair, seed, 1)
    probability = cross_val_predict(forest, matrix, fair, cv=splits, method="predict_proba")[:, 1]
    return [float(roc_auc_score(fair[test], probability[test])) for _, test in splits]


def frequent(matrix: sparse.csr_matrix) -> tuple[sparse.csc_matrix, NDArray[np.int64]]:
    """The columns that at least RARE episodes have, and which they are."""
    counts = np.asarray((matrix != 0).sum(axis=0)).ravel()
    columns = np.flatnonzero(counts >= min(RARE, matrix.shape[0]))
    if not len(columns):
        columns = np.arange(matrix.shape[1])
    return matrix[:, columns].tocsc(), columns


def _forest(fair: NDArray[np.bool_], seed: int, workers: int) -> RandomForestClassifier:
    """A balanced forest: each tree sees about as many fair as unfair episodes.

    scikit-learn draws the bootstrap by class weight. At full size it would draw a rare unfair episode into
    every tree, and none would be left out of the bag to judge it; at twice the rarer class it is drawn once
    on average.
    """
    from sklearn.ensemble import RandomForestClassifier

    from epymarl_fairtest.predictor.trees import Tree

    rarer = int(min(fair.sum(), (~fair).sum()))
    forest = RandomForestClassifier(
        n_estimators=TREES,
        min_samples_leaf=5,
        class_weight="balanced",
        max_samples=min(len(fair), max(2 * rarer, SMALLEST_SAMPLE)),
        oob_score=False,
        random_state=seed,
        n_jobs=workers,
    )
    forest.estimator = Tree()
    return forest


def _fit(matrix: sparse.csc_matrix, fair: NDArray[np.bool_], seed: int, workers: int) -> RandomForestClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some episodes are in every bag: they are left out of the AUC
        forest = _forest(fair, seed, workers).set_params(oob_score=True).fit(matrix, fair)
    # Threads would add up the trees' votes in the order in which they finish: the last bit would be random.
    return forest.set_params(n_jobs=1)


def votes(forest: RandomForestClassifier, matrix: sparse.csr_matrix) -> NDArray[np.float64]:
    """The fair column of `predict_proba`, to the last bit: the same sum, without a job for each tree."""
    fair = list(forest.classes_).index(True)
    total = np.zeros(matrix.shape[0])
    for tree in forest.estimators_:
        total += tree.predict_proba(matrix, check_input=False)[:, fair]
    return total / len(forest.estimators_)


def out_of_bag_auc(forest: RandomForestClassifier, fair: NDArray[np.bool_]) -> float:
    """AUC on each episode judged by the trees that did not see it; 0.5 where that cannot be said."""
    from sklearn.metrics import roc_auc_score

    known, votes = _out_of_bag(forest, fair)
    return float(roc_auc_score(known, votes)) if len(known) else 0.5


def roc(forest: RandomForestClassifier, fair: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The ROC curve (points, 2) of calling episodes unfair, out of bag; at most CURVE points, none if it has none."""
    from sklearn.metrics import roc_curve

    known, votes = _out_of_bag(forest, fair)
    if not len(known):
        return np.empty((0, 2))
    false_alarms, alarms, _ = roc_curve(~known, -votes)
    shown = np.unique(np.linspace(0, len(alarms) - 1, CURVE).astype(int))
    points: NDArray[np.float64] = np.stack([false_alarms, alarms], axis=1)[shown]
    return points


def _out_of_bag(
    forest: RandomForestClassifier, fair: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which episodes are fair, and their votes by the trees that did not see them; nothing where votes say nothing."""
    votes = forest.oob_decision_function_
    judged = np.nan_to_num(votes).sum(axis=1) > 0  # an episode in every bag has no votes
    blind = all(tree.tree_.node_count == 1 for tree in forest.estimators_)  # its votes only count the bag
    if blind or fair[judged].all() or not fair[judged].any():
        return fair[:0], np.empty(0)
    return fair[judged], votes[judged, list(forest.classes_).index(True)]
