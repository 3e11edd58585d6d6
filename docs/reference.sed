# What docs/commands.md leaves out of typer's output: the option --help, usage lines, lists of summaries.
s/^The overnight recipe lab for pretraining\.$/On this page you look up what each command does and every option of it./
/^\* `--help`: Show this message/d
/^\*\*Usage\*\*:$/,/^```$/d
/^\* `[a-z][a-z-]*`: /d
/^\*\*Commands\*\*:$/d
s/^\(\* `--[^`]*\) <[a-z ]*>`/\1`/
