"""Constants of the approximations, per float dtype. Polynomials are minimax fits, highest power first."""

from __future__ import annotations

from dataclasses import dataclass

Polynomial = tuple[float, ...]
Parts = tuple[float, ...]
"""Numbers of falling size whose sum is a constant, more exactly than one float could hold it."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """exp(r) = 1 + r + r**2 * exp(r) for |r| <= ln(2) / 2; exp2(r) = 1 + r * exp2(r) for |r| <= 1/2.

    Above `exp_most` the result is infinite, below `exp_least` it is 0; the same for exp2. expm1 is -1 below
    `expm1_least`.
    """

    exp: Polynomial
    exp2: Polynomial
    exp_most: float
    exp_least: float
    exp2_most: float
    exp2_least: float
    expm1_least: float


@dataclass(frozen=True, slots=True)
class Logarithm:
    """ln(1 + f) = f - f**2 / 2 + rest for 0.75 <= 1 + f < 1.5.

    `rest` is f**3 times a polynomial in f, or s * (f**2 / 2 + s**2 times a polynomial in s**2) with s = f / (2 + f).
    The high parts of ln(2) and log10(2) are short: their products with an exponent are exact.
    """

    rest: Polynomial
    by_quotient: bool
    ln2: Parts
    log10_2: Parts
    log2_e: Parts
    log10_e: Parts


@dataclass(frozen=True, slots=True)
class Hyperbolic:
    """tanh(x) = x + x**3 * tanh(x**2) for |x| < 0.625; 1 above `one`."""

    tanh: Polynomial
    one: float


@dataclass(frozen=True, slots=True)
class ErrorFunction:
    """erf(x) = x + x * small(x**2) for |x| <= 0.921875, and 1 - exp(large(|x| - 0.921875)) up to `one`."""

    small: Polynomial
    large: Polynomial
    one: float


@dataclass(frozen=True, slots=True)
class Circular:
    """sin(r) = r + r**3 * sin(r**2), cos(r) = 1 - r**2 / 2 + r**4 * cos(r**2), for |r| <= pi / 4.

    Beyond `most` the parts of pi / 2 do not reduce x exactly enough.
    """

    sin: Polynomial
    cos: Polynomial
    half_pi: Parts
    most: float


EXPONENTIAL = {
    "float32": Exponential(
        exp=(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
        exp2=(1.54772104e-4, 1.34004175e-3, 9.61800106e-3, 5.55032752e-2, 2.40226507e-1, 6.93147182e-1),
        exp_most=89.0,
        exp_least=-104.0,
        exp2_most=129.0,
        exp2_least=-151.0,
        expm1_least=-18.0,
    ),
    "float64": Exponential(
        exp=(
            2.5119120508703967e-08, 2.763142647176314e-07, 2.7557212636838257e-06, 2.480148956322193e-05,
            1.984126992115246e-04, 1.3888888947348518e-03, 8.333333333305607e-03, 4.166666666651429e-02,
            1.6666666666666702e-01, 0.5000000000000013,
        ),
        exp2=(
            4.4576371891312407e-10, 7.0739038143779344e-09, 1.0178044923748722e-07, 1.3215434577308352e-06,
            1.5252733870906404e-05, 1.5403530458527547e-04, 1.3333558146375927e-03, 9.618129107593007e-03,
            5.550410866482175e-02, 2.4022650695910133e-01, 6.931471805599453e-01,
        ),
        exp_most=710.0,
        exp_least=-746.0,
        exp2_most=1025.0,
        exp2_least=-1076.0,
        expm1_least=-38.0,
    ),
}  # fmt: skip

LOGARITHM = {
    "float32": Logarithm(
        rest=(
            3.76585834e-2, -9.11486447e-2, 1.17005631e-1, -1.27279595e-1, 1.42762646e-1, -1.66552871e-1, 1.99996039e-1,
            -2.50001669e-1, 3.33333403e-1,
        ),
        by_quotient=False,
        ln2=(0.693359375, -2.12194440e-4),
        log10_2=(0.301025390625, 4.605039066518657e-06),
        log2_e=(1.44269502, 1.92596303e-08),
        log10_e=(0.434294492, -1.010305e-08),
    ),
    "float64": Logarithm(
        rest=(
            1.3850612999245251e-01, 1.3172466890961135e-01, 1.5391180282526679e-01, 1.8181663746741242e-01,
            2.2222224332774104e-01, 2.857142855549848e-01, 4.0000000000058095e-01, 6.66666666666666e-01,
        ),
        by_quotient=True,
        ln2=(6.93147180369123816490e-01, 1.90821492927058770002e-10),
        log10_2=(0.301029995663157, 8.241712586023572e-13),
        log2_e=(1.4426950408889634, 2.0355273740931033e-17),
        log10_e=(0.4342944819032518, 1.098319650216765e-17),
    ),
}  # fmt: skip

HYPERBOLIC = {
    "float32": Hyperbolic(
        (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1),
        9.1,
    ),
    "float64": Hyperbolic(
        (
            -1.6103448590770343e-05, 7.721082630893098e-05, -2.286259138189962e-04, 5.863488671286403e-04,
            -1.4549693732885554e-03, 3.5919913562257226e-03, -8.863221292731215e-03, 2.1869487599947786e-02,
            -5.396825393239495e-02, 1.333333333326473e-01, -3.3333333333332876e-01,
        ),
        19.1,
    ),
}  # fmt: skip

ERROR_FUNCTION = {
    "float32": ErrorFunction(
        small=(-5.96362632e-4, 4.98788105e-3, -2.67630406e-2, 1.12817191e-1, -3.76124859e-1, 1.28379151e-1),
        large=(
            -2.11189254e-5, 2.98455387e-4, -2.1446594e-3, 1.08536491e-2, -4.48258184e-2, -8.32988679e-1, -2.50801253,
            -1.64856184,
        ),
        one=4.0,
    ),
    "float64": ErrorFunction(
        small=(
            -8.287574904203913e-10, 1.3960402088638927e-08, -1.625919538437475e-07, 1.6453467752468859e-06,
            -1.4925183651499829e-05, 1.2055316094163954e-04, -8.548326619770607e-04, 5.223977619307432e-03,
            -2.6866170644579728e-02, 1.1283791670952557e-01, -3.7612638903183704e-01, 1.283791670955126e-01,
        ),
        large=(
            1.2958626228132265e-12, -3.669467719539936e-11, 4.802308572799628e-10, -3.844215643011316e-09,
            2.0814455780092195e-08, -7.766238478906626e-08, 1.7696316955776217e-07, -7.623302582464162e-09,
            -2.092996571977522e-06, 1.1210808220547621e-05, -3.4456735683970635e-05, 4.546361143529599e-05,
            2.1791742932790415e-04, -2.0850100383716106e-03, 1.0827658631645707e-02, -4.481961454991547e-02,
            -8.329893621347475e-01, -2.5080125223775456, -1.6485618937214688,
        ),
        one=6.0,
    ),
}  # fmt: skip

CIRCULAR = {
    "float32": Circular(
        sin=(-1.95165645e-4, 8.33217334e-3, -1.66666552e-1),
        cos=(2.44323528e-5, -1.38873095e-3, 4.16666456e-2),
        half_pi=(1.57079637, -4.37113883e-08, -1.71512451e-15),
        most=32768.0,
    ),
    "float64": Circular(
        sin=(
            1.5896458019379861e-10, -2.5050752482663002e-08, 2.755731365725387e-06, -1.9841269829711943e-04,
            8.333333333322299e-03, -1.6666666666666632e-01,
        ),
        cos=(
            -1.1358277333177714e-11, 2.087569594592938e-09, -2.75573141441214e-07, 2.480158728873301e-05,
            -1.3888888888872871e-03, 4.1666666666666595e-02,
        ),
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
        most=2.0**30,
    ),
}  # fmt: skip
