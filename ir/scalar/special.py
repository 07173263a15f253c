"""Special functions in the scalar language, for f32 and f64: the inverse error function.

Largest errors in ulp, measured by tests/ir/scalar/test_functions.py: `erfinv` 2.69 (f32),
1.73 (f64).

Ideas. `erfinv` is x times a polynomial in w = -log(1 - x * x) near zero, and in the root of w
farther out (Giles, "Approximating the erfinv function", 2011); every piece is computed.

Tables: scripts/fit_coefficients.py, lowest order first.
"""

from __future__ import annotations

import math

from ir.scalar.exponential import log
from ir.scalar.language import Scalar, abs_, const, copysign, polynomial, select, sqrt
from ir.types import F32, F64, DType

# fmt: off
#: pieces: w below a limit; the polynomial of w (of its root, after the first piece) less a middle
_ERFINV: dict[DType, tuple[tuple[float, float, tuple[float, ...]], ...]] = {
    F32: (
        (5.0, 2.5, (
            1.50140941, 0.246640712, -0.00417769374, -0.00125369395, 0.000218596688,
            -4.40051554e-06, -3.52805182e-06, 3.44037801e-07, 2.84962578e-08,
        )),
        (math.inf, 3.0, (
            2.83297706, 1.00167513, 0.00943624694, -0.00763171213, 0.00575898075,
            -0.00364583079, 0.00130056776, 7.53231507e-05, -0.000161656324,
        )),
    ),
    F64: (
        (6.25, 3.125, (
            1.6536545626831027, 0.24015818242558834, -0.0060336708714268513,
            -0.00074070253415464314, 0.00018673420801981186, -1.3882523393957483e-05,
            -1.3654691758785656e-06, 4.2347881682224598e-07, -2.9070391275641323e-08,
            -4.1126604371632234e-09, 1.0512233770504325e-09, -5.4143032839192566e-11,
            -1.2978805369933967e-11, 2.6305268312588155e-12, -8.0719259389526372e-14,
            -4.0020031087428126e-14, 6.5213335114362214e-15, -3.9401881238761114e-17,
            -1.221563719163978e-16, 1.5510787011089308e-17, 6.0750506964921015e-19,
            -3.4734793893633719e-19, 1.9992599911901355e-20, 3.1940155490855179e-21,
            -3.5932028969348957e-22,
        )),
        (16.0, 3.25, (
            3.0838856104922208, 1.0052589676941655, 0.0053709145535550326,
            -0.0037512085082247342, 0.0024914420979569602, -0.0016882755354488555,
            0.00095328934157941369, -0.00035503781378524519, 2.4031512865758357e-05,
            6.8287117392519552e-05, -4.7320680665446967e-05, 1.2465028224217455e-05,
            2.9325784553853483e-06, -3.985705945648173e-06, 1.4815977874022579e-06,
            -2.7617162238162411e-08, -2.454981896334039e-07, 1.3158663683192966e-07,
            -2.0914533347726777e-08, -1.5305397964152548e-08, 7.6802004790755343e-09,
        )),
        (math.inf, 5.0, (
            4.8499064014085844, 1.0103004648645448, -0.00013871931837971602,
            -0.00021503011979900869, 7.5995278083313721e-05, -1.9681771199539315e-05,
            4.5260526902814986e-06, -9.9302546453645805e-07, 2.2905179486036702e-07,
            -6.7572867469921319e-08, 2.9022338177557887e-08, -1.5213350435717021e-08,
            7.8132569753710375e-09, -3.5345890416630815e-09, 1.3273289617556068e-09,
            -3.8039980833950743e-10, 5.9990654060227454e-11, 1.4554370350600709e-11,
            -1.5882974135741462e-11, 5.916345493195051e-12, -9.0548505139055037e-13,
        )),
    ),
}
# fmt: on


def erfinv(x: Scalar) -> Scalar:
    """Infinite from 1 on, and up to -1, as Paddle's."""
    w = -log((1.0 - x) * (1.0 + x))
    root = sqrt(w)
    (limit, middle, near), *far = _ERFINV[x.dtype]
    r = polynomial(w - middle, near)
    for edge, center, coefficients in far:
        r = select(w < limit, r, polynomial(root - center, coefficients))
        limit = edge
    return select(abs_(x) >= 1.0, copysign(const(math.inf, x.dtype), x), r * x)
