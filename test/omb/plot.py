# SPDX-License-Identifier: BSD-3-Clause
"""Plots against message size, as SVG text; needs no other module."""

import math

LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 34       # margins of a panel, pixels


class Line:
    """A curve: points are (size in bytes, figure, lowest, highest)."""

    def __init__(self, name, color, points):
        self.name, self.color, self.points = name, color, points


class Panel:
    """One pair of axes. The figures' axis is logarithmic if `log`; `at` are
    levels with a line, such as 1 for a ratio."""

    def __init__(self, title, unit, lines, log=False, at=()):
        self.title, self.unit, self.lines = title, unit, lines
        self.log, self.at = log, at

    def values(self):
        return [value for line in self.lines for point in line.points
                for value in point[1:]]

    def sizes(self):
        return sorted({point[0] for line in self.lines
                       for point in line.points})

    def range(self):
        values = self.values() + list(self.at)
        if not self.log:
            step = nice_step(max(values))
            return 0.0, step * math.ceil(max(values) / step)
        low, high = min(values), max(values)
        margin = max((high / low) ** 0.06, 1.02)
        return low / margin, high * margin


def nice_step(peak):
    step = 10 ** math.floor(math.log10(peak))
    return next(step * part for part in (0.2, 0.5, 1, 2)
                if peak / (step * part) <= 6)


def ticks(low, high, log):
    if not log:
        step = nice_step(high)
        return [step * index for index in range(int(high / step + 1.5))]
    if high / low < 3:
        step = nice_step(high - low)
        first = math.ceil(low / step)
        return [step * index for index in range(first, int(high / step) + 1)]
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    for parts in ((1, 2, 5), (1, 3), (1,)):
        found = [part * 10.0 ** power for power in decades for part in parts
                 if low <= part * 10.0 ** power <= high]
        if len(found) <= 8:
            break
    return found


def short(size):
    for shift, unit in ((30, 'G'), (20, 'M'), (10, 'K')):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return '%d%s' % (size >> shift, unit)
    return '%d' % size


def escaped(text):
    return text.replace('&', '&amp;').replace('<', '&lt;')


def draw(panel, x, y, width, height):
    """Draw a panel with its upper left corner at x, y."""
    out = ['<text x="%g" y="%g" font-weight="bold">%s</text>'
           % (x + LEFT, y + 12, escaped(panel.title)),
           '<text x="%g" y="%g" fill="#555">%s</text>'
           % (x + 4, y + TOP - 6, escaped(panel.unit))]
    sizes = panel.sizes()
    if not sizes:
        return out + ['<text x="%g" y="%g" fill="#555">no figure</text>'
                      % (x + LEFT, y + TOP + 20)]
    low, high = panel.range()
    right, bottom = x + width - RIGHT, y + height - BOTTOM
    first, last = math.log2(sizes[0]) - 0.5, math.log2(sizes[-1]) + 0.5

    def at_x(size):
        return x + LEFT + (right - x - LEFT) * (math.log2(size) - first) / \
            (last - first)

    def at_y(value):
        part = math.log(value / low) / math.log(high / low) if panel.log \
            else (value - low) / (high - low)
        return bottom - (bottom - y - TOP) * part

    for value in ticks(low, high, panel.log):
        out += ['<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#ddd"/>'
                % (x + LEFT, right, at_y(value), at_y(value)),
                '<text x="%g" y="%.1f" text-anchor="end">%.4g</text>'
                % (x + LEFT - 5, at_y(value) + 4, value)]
    for value in panel.at:
        out.append('<line x1="%g" x2="%g" y1="%.1f" y2="%.1f" stroke="#555" '
                   'stroke-dasharray="4 3"/>'
                   % (x + LEFT, right, at_y(value), at_y(value)))
    apart = -(-len(sizes) // max(2, int(width / 52)))
    for size in sizes[::-1][::apart]:
        out.append('<text x="%.1f" y="%g" text-anchor="middle">%s</text>'
                   % (at_x(size), bottom + 16, short(size)))
    for line in panel.lines:
        for size, middle, least, most in line.points:
            out += ['<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" '
                    'stroke="%s"/>' % (at_x(size), at_x(size), at_y(least),
                                       at_y(most), line.color),
                    '<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>'
                    % (at_x(size), at_y(middle), line.color)]
        out.append('<polyline points="%s" fill="none" stroke="%s" '
                   'stroke-width="1.6"/>' % (' '.join(
                       '%.1f,%.1f' % (at_x(point[0]), at_y(point[1]))
                       for point in line.points), line.color))
    return out


def figure(title, subtitle, rows, width=300, height=230):
    """Draw a grid of panels of equal size, with one legend below."""
    whole = max(width * max(len(row) for row in rows), 480)
    total = 46 + height * len(rows) + 24
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" '
           'font-family="sans-serif" font-size="11">' % (whole, total),
           '<rect width="100%" height="100%" fill="white"/>',
           '<text x="10" y="18" font-size="14">%s</text>' % escaped(title),
           '<text x="10" y="36" fill="#555">%s</text>'
           % escaped(subtitle[:whole // 6])]
    names = {}
    for index, row in enumerate(rows):
        for place, panel in enumerate(row):
            out += draw(panel, place * width, 46 + index * height, width,
                        height)
            for line in panel.lines:
                names.setdefault(line.name, line.color)
    for index, (name, color) in enumerate(names.items()):
        out.append('<text x="%d" y="%d" fill="%s">&#9679; %s</text>'
                   % (LEFT + 130 * index, total - 10, color, escaped(name)))
    return '\n'.join(out + ['</svg>']) + '\n'
