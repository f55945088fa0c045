"""The pages under test: their code runs, their links lead somewhere, their tables match the code."""
