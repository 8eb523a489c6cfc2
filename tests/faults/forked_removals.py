"""Removals in the children of `tests.faults.killed_children`: CATALOG PLAN, as a program.

An operation removes a leftover file or a folder that is empty then.
"""

import sys

from kip33.builds import leftover_removal
from kip33.builds.leftovers import read_leftover_plan
from kip33.catalog.catalog import Catalog
from kip33.stores.locations import Location
from tests.faults.killed_children import answer_each_line

OPERATIONS = ((leftover_removal, "remove"), (leftover_removal, "remove_empty_folder"))


def main() -> None:
    catalog, plan = Catalog.at(sys.argv[1]), read_leftover_plan(Location.of(sys.argv[2]))
    leftover_removal.remove_leftovers(catalog, plan, dry_run=True)  # loads what it needs
    answer_each_line(lambda: leftover_removal.remove_leftovers(catalog, plan), OPERATIONS)


if __name__ == "__main__":
    main()
