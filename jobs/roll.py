"""spark-submit jobs/roll.py CATALOG|SOURCE: the same options as `kip33 roll`."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import run
from kip33.cli.roll import roll

if __name__ == "__main__":
    run(roll, SparkJob())
