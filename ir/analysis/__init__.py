"""Analyses of programs: facts that passes and the front end ask for."""
