"""Commands on a campaign's record: report, live page, exports and imports."""
