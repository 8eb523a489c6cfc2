"""spark-submit jobs/search.py CATALOG --requests FILE: the same options as `kip33 search`."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import run
from kip33.cli.search import search

if __name__ == "__main__":
    run(search, SparkJob())
