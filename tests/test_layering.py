"""Imports go left only, through the tiers of packages below; packages of one tier are strangers.

errors | options <- formats <- rules | stores <- drafts <- archive | catalog
       <- indexing | retention | search | records | audits <- builds | restore | report
       <- local | spark | plots | demo <- api <- cli <- jobs | docs
"""

import ast
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.sources import nodes_of

ROOT = Path(__file__).parents[1]
TIERS = (
    ("errors", "options"),
    ("formats",),
    ("rules", "stores"),
    ("drafts",),
    ("archive", "catalog"),
    ("indexing", "retention", "search", "records", "audits"),
    ("builds", "restore", "report"),
    ("local", "spark", "plots", "demo"),
    ("api",),
    ("cli",),
    ("jobs", "__main__", "docs"),
)
TIER = {package: number for number, tier in enumerate(TIERS) for package in tier}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("kip33", "jobs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.parent.name != "airflow"  # runs in Airflow's environment and imports nothing of ours
}
MACHINE_CODE = ("kip33.formats.native",)
TIMES = "kip33.formats.times"  # turns a datetime into ms; reads no clock
ENDS_OF_KEYS = "kip33.stores.locations"  # no result depends on when keys are asked for again
CALLERS_CLOCK = "kip33.archive.moments"  # of a command or of a program that calls kip33
OWN_PROGRAM = "jobs.topic_table"  # no command of kip33: it has its options and its session
RIGHT_OF_RULES = tuple(
    f"kip33.{package}" for tier in TIERS[2:-1] for package in tier if package != "rules"
)
# A package outside, and the only places that may import it.
HOMES = {
    "pyspark": ("kip33.spark", "kip33.cli", OWN_PROGRAM),
    "py4j": ("kip33.spark", "kip33.cli", OWN_PROGRAM),
    "pyarrow": ("kip33.formats.codecs", *RIGHT_OF_RULES),
    "click": ("kip33.cli", OWN_PROGRAM),
    "matplotlib": ("kip33.plots",),
    "jinja2": ("kip33.report",),
    "prometheus_client": ("kip33.cli.metrics_file",),
    "numba": MACHINE_CODE,
    "llvmlite": MACHINE_CODE,
    "logging": ("kip33.spark", "kip33.cli"),
    "time": ("kip33.cli", ENDS_OF_KEYS, CALLERS_CLOCK),
    "datetime": ("kip33.cli", TIMES),
    "pandas": (),
}


def is_inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def package_of(module: str) -> str | None:
    """Return the package, None for `kip33` itself, which only names what lies in others."""
    parts = module.split(".")
    if parts[0] == "jobs":
        return "jobs"
    return parts[1] if parts[0] == "kip33" and len(parts) > 1 else None


def is_fault(mine: str, theirs: str) -> bool:
    return mine != theirs and TIER[theirs] >= TIER[mine]


def imports_of(nodes: Iterable[ast.AST], module: str) -> Iterator[str]:
    """Yield every module and name that one of `nodes` imports, in full."""
    is_package = MODULES[module].name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                source = ".".join([*above, *filter(None, [node.module])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def faults_of(module: str, imported: str) -> Iterator[str]:
    mine, theirs = package_of(module), package_of(imported)
    if mine and theirs in TIER and is_fault(mine, theirs):
        yield f"{module} imports {imported}: {theirs} is not left of {mine}"
    top = imported.split(".")[0]
    if top in HOMES and not is_inside(module, *HOMES[top]):
        yield f"{module} imports {imported}: only {', '.join(HOMES[top]) or 'nobody'} may"
    if top == "tests":
        yield f"{module} imports {imported}: tests are not part of the program"


def test_imports_go_left_only() -> None:
    faults = []
    for module in MODULES:
        imported = imports_of(nodes_of(MODULES[module]), module)
        faults += [(module, fault) for name in imported for fault in faults_of(module, name)]
    assert faults == []


def that_runs(node: ast.AST) -> Iterator[ast.AST]:
    """Leave out what is imported only for a type checker; functions import, too."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from that_runs(child)


def unit_of(module: str) -> str:
    """Return the module; a package inside a package is one unit with its modules."""
    return ".".join(module.split(".")[:3])


def test_no_modules_import_each_other_in_a_circle() -> None:
    imports: dict[str, set[str]] = {}
    for module in MODULES:
        imported = imports_of(that_runs(nodes_of(MODULES[module])[0]), module)
        units = {unit_of(name) for name in imported if name in MODULES} - {unit_of(module)}
        imports.setdefault(unit_of(module), set()).update(units)
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


# What the other packages know of KIP-33's drafts: the registry of index designs, and the search.
SEAM = {
    "kip33.drafts.designs": {"DESIGNS", "DRAFT_FILES", "DesignName", "design_of", "other_entries"},
    "kip33.drafts.lookup": {"DraftIndex", "draft_of", "why_not_used", "widths_of"},
}
READERS_OF_COMPARISONS = {"kip33.audits.dialect_tree", "kip33.cli.dialects"}


def test_drafts_are_met_at_one_seam() -> None:
    allowed = {f"{module}.{name}" for module, names in SEAM.items() for name in names} | set(SEAM)
    faults = []
    for module in MODULES:
        if package_of(module) == "drafts":
            continue
        imported = set(imports_of(nodes_of(MODULES[module]), module))
        drafts = {name for name in imported if is_inside(name, "kip33.drafts")} - allowed
        if module in READERS_OF_COMPARISONS:
            drafts = {n for n in drafts if not is_inside(n, "kip33.drafts.comparison")}
        faults += [f"{module} imports {name}" for name in sorted(drafts)]
    assert faults == []


def test_every_module_is_in_a_package_of_a_tier() -> None:
    assert {package_of(module) for module in MODULES} - {None} == set(TIER)


CLOCKS = {"time", "time_ns", "monotonic", "perf_counter", "now", "utcnow", "today", "sleep"}


def test_the_clock_is_read_in_cli_only() -> None:
    may_read = {m for m in MODULES if package_of(m) in ("cli", "jobs", None)}
    reads = []
    for module in MODULES.keys() - may_read - {ENDS_OF_KEYS, CALLERS_CLOCK}:
        calls = [node.func for node in nodes_of(MODULES[module]) if isinstance(node, ast.Call)]
        clocks = [f for f in calls if isinstance(f, ast.Attribute) and f.attr in CLOCKS]
        reads += [f"{module}, line {clock.lineno}" for clock in clocks]
    assert reads == []
