"""How what an operation costs grows with what it does not touch: three sizes, and their ratios."""
