"""spark-submit jobs/dialects.py SOURCE: the same options as `kip33 dialects`."""

from kip33.cli.dialects import dialects
from kip33.cli.engine_option import SparkJob
from kip33.cli.main import run

if __name__ == "__main__":
    run(dialects, SparkJob())
