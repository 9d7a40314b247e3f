# SPDX-License-Identifier: BSD-3-Clause
"""Compare figures of test/omb/compare with what is expected of them.

usage: check_figures.py SAMPLES RULE...

A rule is TEST/VARIANT/SIZE=VALUE~PERCENT (the median is within PERCENT of
VALUE) or TEST/VARIANT:BASE/SIZE>=RATIO (the median is at least RATIO times that
of the variant BASE). SIZE is in bytes, or with K, M or G. Exits with 1 and says
why if a rule is not kept, if there is no figure to compare with, or if a run
failed for another reason than an emulated node that could not keep its time.
"""

import json
import re
import statistics
import sys


def bytes_of(text):
    shift = {"K": 10, "M": 20, "G": 30}.get(text[-1], 0)
    return int(text[:-1] if shift else text) << shift


def median(samples, test, variant, size):
    values = [sample["value"] for sample in samples
              if (sample["test"], sample["variant"], sample["size"]) ==
              (test, variant, bytes_of(size)) and "value" in sample]
    return statistics.median(values) if values else None


def check_rule(samples, rule):
    """Return (kept, message)."""
    match = re.fullmatch(r"([\w-]+)/([\w-]+)/(\w+)=([\d.]+)~([\d.]+)", rule)
    if match:
        test, variant, size, expected, percent = match.groups()
        value = median(samples, test, variant, size)
        if value is None:
            return False, "no figure"
        off = 100 * (value / float(expected) - 1)
        return abs(off) <= float(percent), "%.4g, %+.1f %%" % (value, off)

    match = re.fullmatch(r"([\w-]+)/([\w-]+):([\w-]+)/(\w+)>=([\d.]+)", rule)
    if not match:
        sys.exit("check_figures: '%s' is no rule" % rule)
    test, variant, base, size, least = match.groups()
    value = median(samples, test, variant, size)
    other = median(samples, test, base, size)
    if value is None or other is None:
        return False, "no figure"
    return (value >= float(least) * other,
            "%.4g / %.4g = %.2f" % (value, other, value / other))


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    with open(arguments[0], encoding="utf-8") as stream:
        samples = json.load(stream)["samples"]
    wrong = 0
    for sample in samples:
        if "error" in sample and " late" not in sample["error"]:
            wrong += 1
            print("WRONG %(test)s, %(variant)s, %(size)d bytes: %(error)s"
                  % sample)
    for rule in arguments[1:]:
        kept, found = check_rule(samples, rule)
        wrong += not kept
        print("%-5s %s: %s" % ("ok" if kept else "WRONG", rule, found))
    return 1 if wrong else 0


sys.exit(main(sys.argv[1:]))
