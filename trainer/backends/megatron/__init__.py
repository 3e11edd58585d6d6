"""The Megatron-Core backend: the recipe in the framework that the full-size run will use."""
