"""Put `conf/` and `jobs/` into the wheel, where `kip33 init` finds them.

Not for `pip install -e`: a folder `kip33` beside other packages would look like a package there.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StarterFiles(BuildHookInterface[Any]):
    """Adds the files of a deployment to a wheel that is not an editable one."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add both folders to the files of the wheel."""
        if version == "standard":
            build_data["force_include"] |= {
                name: f"kip33/starter/{name}" for name in ("conf", "jobs")
            }
