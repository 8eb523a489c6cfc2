"""Put into a wheel its kernels, `conf/` and `jobs/` for `kip33 init`, and `pyspark_kip33`.

KIP33_WHEEL chooses the platform: `x86_64` or `aarch64`, with the kernels for Linux on it; `pure`,
for all platforms and without kernels; `all`, the same with all kernels that can be made, for
Spark's --py-files. By default it is this machine's, or `pure` if its kernels cannot be made.

Not for `pip install -e`: a folder `kip33` beside other packages would look like a package there.
"""

import os
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

KERNELS = {"x86_64": ("x86-64-v4", "x86-64-v3"), "aarch64": ("aarch64",)}
DEFAULT_SOURCE = "kip33/spark/default_source.py"  # Spark looks for it beside other packages


class PlatformWheel(BuildHookInterface[Any]):
    """Adds to a wheel that is not an editable one what is not under `kip33/` in version control."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the kernels; add them, and both folders, to the files of the wheel."""
        if version != "standard":
            return
        build_data["force_include"] |= {name: f"kip33/starter/{name}" for name in ("conf", "jobs")}
        build_data["force_include"] |= {DEFAULT_SOURCE: "pyspark_kip33/__init__.py"}
        asked = os.environ.get("KIP33_WHEEL")
        platform = asked or (os.uname().machine if sys.platform == "linux" else "pure")
        names = sum(KERNELS.values(), ()) if platform == "all" else KERNELS.get(platform, ())
        is_all = platform == "all"
        if not names or not (self.made(names, required=bool(asked) and not is_all) or is_all):
            return
        kinds = [f"kip33/formats/native/kernels/{name}.*" for name in names]
        build_data["artifacts"] += kinds
        if not is_all:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-manylinux_2_17_{platform}"

    def made(self, names: tuple[str, ...], *, required: bool) -> bool:
        """Make kernels that are not there yet; return whether all are."""
        targets = [word for name in names for word in ("--target", name)]
        command = [sys.executable, "-m", "kip33.indexing.kernels", *targets]
        return not subprocess.run(command, cwd=self.root, check=required).returncode
