"""The paper's search: fitness functions, prioritisation, operators, selection, and Algorithm 1."""
