"""spark-submit jobs/build_index.py SOURCE --index-dir DIR: the same options as `kip33 build`."""

from kip33.cli.build import build
from kip33.cli.engine_option import SparkJob
from kip33.cli.main import run

if __name__ == "__main__":
    run(build, SparkJob())
