"""The help of commands with many options: in groups, of what, where, engine and output."""

from typing import Final

import click

_FEW: Final = 12  # that need no groups
_WHAT: Final = "What"
_GROUPS: Final = {
    _WHAT: (),  # all others
    "Where": (
        *("index_dir", "in_place", "index_files", "layout", "catalog", "to", "output"),
        *("plan_file", "trash"),
    ),
    "Engine": ("engine", "workers", "verbose", "parallelism", "master", "conf", "config"),
    "Output": (
        *("fail_on", "summary_file", "metrics_file", "metrics_by", "metrics_limit"),
        *("output_format", "time_format", "guards_csv", "guard_formulas", "result_line"),
        *("help", "_click_default_help"),
    ),
}
_GROUP_OF: Final = {name: group for group, names in _GROUPS.items() for name in names}


class GroupedCommand(click.Command):
    """A command whose help has its options in groups, if there are many."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, each in its group."""
        records: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for param in self.get_params(ctx):
            if record := param.get_help_record(ctx):
                records[_GROUP_OF.get(param.name or "", _WHAT)].append(record)
        if sum(map(len, records.values())) <= _FEW:
            super().format_options(ctx, formatter)
            return
        for group, options in records.items():
            if options:
                with formatter.section(group):
                    formatter.write_dl(options)
