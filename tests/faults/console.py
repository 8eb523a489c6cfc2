"""`kip33` as its console script runs it, but that `build` needs no JVM: every bin in this process.

python -m tests.faults.console build SOURCE --index-dir DIR ...
"""

from typing import Any

import kip33.cli.main
import kip33.spark.build
import kip33.spark.session
from kip33.builds.commit import BuildSummary
from kip33.builds.plan import BuildPlan
from tests.faults.builds import carry_out


def run_build(spark: None, plan: BuildPlan, **_: Any) -> BuildSummary:
    return carry_out(plan)


def main() -> None:
    kip33.spark.session.create_session = lambda **_: None  # type: ignore[assignment]
    kip33.spark.build.run_build = run_build
    kip33.cli.main.main()


if __name__ == "__main__":
    main()
