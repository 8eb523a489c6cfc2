"""spark-submit jobs/build_index.py SOURCE --index-dir DIR: the same options as `kip33 build`."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import get_command, run

if __name__ == "__main__":
    run(get_command("build"), SparkJob())
