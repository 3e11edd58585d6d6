"""Use a language model as a proposer: prompts, wire protocol, and checks of its replies."""
