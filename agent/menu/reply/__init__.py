"""Reads the reply of a language model: the one JSON object in it, and what that object asks for."""
