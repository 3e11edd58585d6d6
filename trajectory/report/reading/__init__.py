"""Turns a journal, or another tool's file, into findings."""
