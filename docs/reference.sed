# What docs/commands.md leaves out of typer's output: the option --help, usage lines, lists of summaries,
# headings of lists, and the help of two options that most commands have.
s/^The overnight recipe lab for pretraining\.$/On this page you look up what each command does and every option of it. Unless a line says more, `--campaign` is a campaign's directory (default: the latest in runs), and `--json` prints the result as JSON./
/^\* `--help`: Show this message/d
/^\*\*Usage\*\*:$/,/^```$/d
/^\* `[a-z][a-z-]*`: /d
/^\*\*\(Commands\|Options\|Arguments\)\*\*:$/,+1d
s/^\(##*\) `autoresearch \(.*\)`$/\1 `\2`/
s/^\(\* `--[^`]*\) <[a-z ]*>`/\1`/
s/^\(\* `--campaign`\): A directory\. Default: the latest in runs\.$/\1/
s/^\(\* `--json`\): \(Print JSON\( at the end\)*\|Machine-readable output\)\.$/\1/
