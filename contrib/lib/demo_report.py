# SPDX-License-Identifier: BSD-3-Clause
"""Table, plot and last line of contrib/demo, from two runs of ucx_mp_bw."""

import argparse
import json
import sys


def die(message):
    sys.exit("demo: " + message)


def load(path):
    """Return the figures of one run by message size; every line must be
    complete."""
    rows = {}
    try:
        with open(path, encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                row = json.loads(line)
                if not row["median"] > 0:
                    die("%s:%d: no figure" % (path, number))
                rows[row["size"]] = row
    except (OSError, ValueError, KeyError, TypeError) as error:
        die("%s: %s" % (path, error))
    if not rows:
        die("%s: nothing was measured" % path)
    return rows


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return "%d %s" % (size // unit, name)
    return "%d B" % size


def plot(path, one, both, title):
    try:
        import matplotlib
    except ImportError:
        print("(no matplotlib, so no plot)")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for rows, label, mark in ((one, "one path", "o-"),
                              (both, "all paths", "s-")):
        sizes = sorted(rows)
        median = [rows[size]["median"] for size in sizes]
        below = [rows[size]["median"] - rows[size]["min"] for size in sizes]
        above = [rows[size]["max"] - rows[size]["median"] for size in sizes]
        axes.errorbar(sizes, median, yerr=(below, above), fmt=mark, capsize=3,
                      label=label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(one))
    axes.set_xticklabels([size_text(size) for size in sorted(one)],
                         rotation=30, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("message")
    axes.set_ylabel("GB/s (10$^9$ bytes/s)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print("plot: " + path)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node", required=True)
    parser.add_argument("--kind", choices=("measured", "modelled"),
                        required=True)
    parser.add_argument("--plot", required=True)
    parser.add_argument("one")
    parser.add_argument("all")
    options = parser.parse_args()

    one = load(options.one)
    both = load(options.all)
    sizes = sorted(set(one) & set(both))
    if set(one) != set(both):
        die("the two runs have different sizes")
    for rows in (one, both):
        for row in rows.values():
            if row["modelled"] != (options.kind == "modelled"):
                die("ucx_mp_bw says modelled: %s, but the node is %s"
                    % (row["modelled"], options.kind))

    wrong = 0
    print("GPU to GPU, window 1, %s, %s; GB/s, median (min..max)"
          % (options.node, options.kind))
    print("%10s %24s %24s %8s  %s" % ("message", "one path", "all paths",
                                      "speedup", "every byte"))
    for size in sizes:
        cells = ["%8.2f (%.2f..%.2f)" % (row["median"], row["min"], row["max"])
                 for row in (one[size], both[size])]
        right = one[size]["validated"] and both[size]["validated"]
        wrong += not right
        print("%10s %24s %24s %7.2fx  %s"
              % (size_text(size), cells[0], cells[1],
                 both[size]["median"] / one[size]["median"],
                 "right" if right else "WRONG"))
    plot(options.plot, one, both, "%s, %s" % (options.node, options.kind))
    if wrong:
        die("wrong bytes at %d sizes" % wrong)
    last = sizes[-1]
    print("speedup: %.2fx (%s, %s)"
          % (both[last]["median"] / one[last]["median"], options.node,
             options.kind))


main()
