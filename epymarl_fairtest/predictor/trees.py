"""A balanced random forest of scikit-learn's trees, grown without the estimators around them.

The same bits as `RandomForestClassifier` (a test compares them): of a small tree's milliseconds, its estimator takes
three quarters.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

LEAF = 5  # episodes in a leaf, at least
DEEPEST = 2**31 - 1


@dataclass(frozen=True)
class Forest:
    trees: list[Any]
    out_of_bag: NDArray[np.float64]  # (episodes,) share of fair votes by trees that did not see it; NaN: all saw it

    @property
    def blind(self) -> bool:
        """Did no tree find anything to ask?"""
        return all(tree.node_count == 1 for tree in self.trees)

    def fair_probability(self, matrix: sparse.csr_matrix) -> NDArray[np.float64]:
        """The trees' mean, added up in their order: in another one the last bit would differ."""
        fair = np.zeros(matrix.shape[0])
        for tree in self.trees:
            fair += tree.predict(matrix)[:, 1]
        return fair / len(self.trees)


def grow_forest(
    matrix: sparse.csc_matrix, fair: NDArray[np.bool_], *, trees: int, sample: int, seed: int, workers: int = 1
) -> Forest:
    """So many trees, each on `sample` episodes, about half of them fair. Both kinds must be there."""
    from sklearn.tree._criterion import Gini
    from sklearn.tree._splitter import BestSparseSplitter
    from sklearn.tree._tree import DepthFirstTreeBuilder, Tree

    episodes, features = matrix.shape
    classes, label = np.array([2], np.intp), fair.astype(np.float64)[:, None]
    weight = (episodes / (2 * np.bincount(fair)))[fair.astype(np.intp)]
    chance = weight / np.sum(weight)
    asked = max(1, int(np.sqrt(features)))  # features at every node

    def grown(seed: int) -> tuple[Any, NDArray[np.int64]]:
        drawn = np.random.RandomState(seed).choice(episodes, sample, p=chance)
        times = np.bincount(drawn, minlength=episodes)
        tree, generator = Tree(features, classes, 1), np.random.RandomState(seed)
        splitter = BestSparseSplitter(Gini(1, classes), asked, LEAF, 0.0, generator, None)
        builder = DepthFirstTreeBuilder(splitter, 2 * LEAF, LEAF, 0.0, DEEPEST, 0.0)
        builder.build(tree, matrix, label, times.astype(np.float64))
        return tree, times

    seeds = np.random.RandomState(seed).randint(DEEPEST, size=trees).tolist()
    with ThreadPoolExecutor(workers) as pool:
        forest = list(pool.map(grown, seeds)) if workers > 1 else [grown(one) for one in seeds]
    votes, voters, rows = np.zeros(episodes), np.zeros(episodes), matrix.tocsr()
    for tree, times in forest:
        unseen = times == 0
        votes[unseen] += tree.predict(rows)[unseen, 1]
        voters += unseen
    with np.errstate(invalid="ignore"):
        return Forest([tree for tree, _ in forest], votes / voters)
