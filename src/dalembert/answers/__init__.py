"""Answers: expectations to a tolerance, with what they cost and how far they can be trusted."""

from dalembert.answers.expectation import expect
from dalembert.answers.result import Expectation, ToleranceError

__all__ = ["Expectation", "ToleranceError", "expect"]
