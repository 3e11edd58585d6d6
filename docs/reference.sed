# What docs/commands.md leaves out of typer's output: the option --help, usage lines, lists of summaries,
# headings of lists, and help that many options share.
s/^The overnight recipe lab for pretraining\.$/On this page you look up what each command does and every option of it. Unless a line says more, `--campaign` is a campaign's directory (default: the latest in runs), `--json` prints the result as JSON, and `--retry-failed` repeats runs that failed. Experiments and `envelope` resume if repeated. A menu or a target is the name of a shipped one or a TOML file./
/^\* `--help`: Show this message/d
/^\*\*Usage\*\*:$/,/^```$/d
/^\* `[a-z][a-z-]*`: /d
/^\*\*\(Commands\|Options\|Arguments\)\*\*:$/,+1d
s/^\(##*\) `autoresearch \(.*\)`$/\1 `\2`/
s/^\(\* `--[^`]*\) <[a-z ]*>`/\1`/
s/^\(\* `--campaign`\): A directory\. Default: the latest in runs\.$/\1/
s/^\(\* `--json`\): \(Print JSON\( at the end\)*\|Machine-readable output\)\.$/\1/
s/^\(\* `--retry-failed`\): Repeat runs that failed\.$/\1/
s/^\(\* `[^`]*`\): A shipped \(menu\|target\)&#x27;s name or a TOML file\./\1:/
s/^\(\* `[^`]*`\):$/\1/
s/^\(\* `[^`]*`\):  *\(\[\|Default\)/\1: \2/
s/ The same command resumes\.$//
