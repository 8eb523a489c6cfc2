"""spark-submit jobs/lag.py ...: the same options as `kip33 lag`; it needs no cluster."""

from kip33.cli.engine_option import SparkJob
from kip33.cli.lag import lag
from kip33.cli.main import run

if __name__ == "__main__":
    run(lag, SparkJob())
