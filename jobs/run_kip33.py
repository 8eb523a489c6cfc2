"""spark-submit jobs/run_kip33.py COMMAND ...: the same options as `kip33 COMMAND`, on Spark.

Not named kip33.py: Python looks in a script's own folder first, so `import kip33` would find it.
"""

from kip33.cli.engine_option import SparkJob
from kip33.cli.main import kip33, run

if __name__ == "__main__":
    run(kip33, SparkJob())
