"""What every room stands on: errors, files, words and values. Imports none of the rooms."""
