"""spark-submit jobs/lag.py ...: the same options as `kip33 lag`; it needs no cluster."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import get_command, run

if __name__ == "__main__":
    run(get_command("lag"), SparkJob())
