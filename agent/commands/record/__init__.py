"""The commands on the record: report, page, exports and imports."""
