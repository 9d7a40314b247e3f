# SPDX-License-Identifier: BSD-3-Clause
"""What the writers of pages share."""


def table(heads, rows):
    """Lines of a Markdown table, and an empty one behind it."""
    return ['| ' + ' | '.join(heads) + ' |', '|' + '---|' * len(heads)] + \
        ['| ' + ' | '.join(row) + ' |' for row in rows] + ['']
