# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of pairs of figures, the base's and ours.

A ratio is always "times better": above 1 ours is faster, for every unit.
"""

import math
import statistics

CONFIDENCE = 0.95
REACH = 0.98            # a loss: the median ratio's interval is below this
LEAST = 0.95            # or the median is below this


def higher_is_better(benchmark):
    return benchmark != 'latency'


def ratio(benchmark, ours, base):
    return ours / base if higher_is_better(benchmark) else base / ours


def outer_rank(count, confidence=CONFIDENCE):
    """Return the rank k, from 1, such that the interval from the k-th lowest to
    the k-th highest of `count` values contains the median with at least that
    confidence, for any distribution; 0 if there are too few values."""
    tail, k = 0.0, 0
    while k < count:
        # probability that at most k of the values are below the median
        tail += math.comb(count, k) / 2.0 ** count
        if 2 * tail > 1 - confidence:
            break
        k += 1
    return k


def median_interval(values, confidence=CONFIDENCE):
    """Return (low, high, whether there are enough values for this confidence);
    with too few, the lowest and the highest value."""
    values = sorted(values)
    rank = outer_rank(len(values), confidence)
    return (values[max(rank, 1) - 1], values[-max(rank, 1)], rank > 0)


def loses(median, high):
    return high < REACH or median < LEAST


def geometric_mean(values):
    return math.exp(sum(math.log(value) for value in values) / len(values))


class Cell:
    """All pairs of one benchmark, window and size."""

    def __init__(self, benchmark, pairs):
        """pairs: [(the base's figure, ours)]; None is a run without a
        figure."""
        self.base = [base for base, _ in pairs if base]
        self.ours = [ours for _, ours in pairs if ours]
        self.ratios = [ratio(benchmark, ours, base)
                       for base, ours in pairs if base and ours]
        self.failed = len(pairs) - len(self.ratios)
        self.median = self.low = self.high = None
        self.sure = False
        if self.ratios:
            self.median = statistics.median(self.ratios)
            self.low, self.high, self.sure = median_interval(self.ratios)

    def loses(self):
        return self.median is not None and loses(self.median, self.high)

    def slower(self):
        """Return whether ours is certainly slower, as a loss or by less."""
        return self.median is not None and self.high < 1
