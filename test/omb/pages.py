# SPDX-License-Identifier: BSD-3-Clause
"""Functions shared by the writers of pages."""


def table(heads, rows):
    """Return the lines of a Markdown table, and an empty line after it."""
    return ['| ' + ' | '.join(heads) + ' |', '|' + '---|' * len(heads)] + \
        ['| ' + ' | '.join(row) + ' |' for row in rows] + ['']
