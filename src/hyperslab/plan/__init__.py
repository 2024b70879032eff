"""Which requests answer a selection, and what they cost. Pure and synchronous: nothing here reads a byte."""

from hyperslab.plan.budget import Budget
from hyperslab.plan.cost import AccessPrices, CostModel, Estimate, FunctionModel
from hyperslab.plan.grouping import Call
from hyperslab.plan.pieces import BoxPieces, Pieces, PointPieces, pieces_of
from hyperslab.plan.plan import Method, Plan, check_method, direct_plan, instead_of_calls, make_plan
from hyperslab.plan.prices import Prices
from hyperslab.plan.profile import FunctionProfile, Profile
from hyperslab.plan.ranges import Needs, Ranges, Units

__all__ = [
    "AccessPrices",
    "BoxPieces",
    "Budget",
    "Call",
    "CostModel",
    "Estimate",
    "FunctionModel",
    "FunctionProfile",
    "Method",
    "Needs",
    "Pieces",
    "Plan",
    "PointPieces",
    "Prices",
    "Profile",
    "Ranges",
    "Units",
    "check_method",
    "direct_plan",
    "instead_of_calls",
    "make_plan",
    "pieces_of",
]
