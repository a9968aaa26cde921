"""Numerical studies: methods at step sizes, their curves, and claims about them.

The paper's four studies are `STUDIES`, others are in `OTHER_STUDIES`; a study of one's own is made
of the same records.
"""

from dalembert.spelling import ByName
from dalembert.studies.claims import Claim, ClaimList
from dalembert.studies.figures import Figure, Image, Line, Panel
from dalembert.studies.kubo_study import kubo
from dalembert.studies.lenard_bernstein_study import lenard_bernstein
from dalembert.studies.lorentz_study import lorentz
from dalembert.studies.plasma_study import plasma
from dalembert.studies.study import Case, Part, Result, Study
from dalembert.studies.van_der_pol_study import van_der_pol

__all__ = [
    "OTHER_STUDIES",
    "STUDIES",
    "Case",
    "Claim",
    "ClaimList",
    "Figure",
    "Image",
    "Line",
    "Panel",
    "Part",
    "Result",
    "Study",
]

STUDIES = ByName(
    "study of the paper",
    {
        "kubo": kubo,
        "vanderpol": van_der_pol,
        "lenard-bernstein": lenard_bernstein,
        "lorentz": lorentz,
    },
)
"""Name to a function that makes the study of a size, "quick" or "paper", with the paper's numbers
or others: `STUDIES["lenard-bernstein"]("quick", nu=0.05, E0=1.0)`."""

OTHER_STUDIES = ByName("other study", {"plasma": plasma})
"""The same for studies that are not the paper's."""
