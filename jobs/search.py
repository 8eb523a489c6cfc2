"""spark-submit jobs/search.py CATALOG --requests FILE: the same options as `kip33 search`."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import get_command, run

if __name__ == "__main__":
    run(get_command("search"), SparkJob())
