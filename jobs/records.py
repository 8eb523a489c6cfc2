"""spark-submit jobs/records.py CATALOG --to FOLDER: the same options as `kip33 records`."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import get_command, run

if __name__ == "__main__":
    run(get_command("records"), SparkJob())
