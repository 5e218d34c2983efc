"""Derivatives of `scipy.special`: against another source, and where they have ends."""

from __future__ import annotations

import numpy as np
import pytest

import adarray
import adarray.scipy.special as special

# From mpmath with 30 digits: f, arguments, place of the derivative, value.
# fmt: off
EXACT: list[tuple[str, tuple[float, ...], int, float]] = [
    ('gammainc', (0.001, 1e-05), 0, -10.81839829908634),
    ('gammainc', (0.001, 2.0), 0, -0.04905334583936488),
    ('gammainc', (0.5, 0.3), 0, -0.7705703513753519),
    ('gammainc', (3.0, 2.5), 0, -0.24711735748326824),
    ('gammainc', (50.0, 49.0), 0, -0.056510237991276115),
    ('gammainc', (1000.0, 1010.0), 0, -0.011945731337225441),
    ('gammainc', (1000.0, 900.0), 0, -6.245709035841566e-05),
    ('gammainc', (100000.0, 100100.0), 0, -0.0011994802802501906),
    ('gammainc', (2.0, 1e-08), 0, -9.671732475602756e-16),
    ('gammaincc', (0.5, 30.0), 0, 5.118991143389857e-14),
    ('gammaincc', (3.0, 20.0), 0, 9.680603996077357e-07),
    ('gammaincc', (50.0, 120.0), 0, 1.4393797605522274e-13),
    ('gammaincc', (1000.0, 1200.0), 0, 2.416038611395438e-10),
    ('betainc', (0.5, 0.5, 1e-06), 0, -0.009185925720194629),
    ('betainc', (0.5, 0.5, 1e-06), 1, 0.0008825423354943546),
    ('betainc', (20.0, 30.0, 0.4), 0, -0.06977511922457008),
    ('betainc', (20.0, 30.0, 0.4), 1, 0.04638767884524421),
    ('betainc', (500.0, 500.0, 0.52), 0, -0.00555691971427293),
    ('betainc', (500.0, 500.0, 0.52), 1, 0.005783755909957637),
    ('betainc', (0.01, 3.0, 0.3), 0, -0.26230270386387394),
    ('betainc', (0.01, 3.0, 0.3), 1, 0.0015941930855495412),
    ('betainc', (5.0, 0.3, 0.999), 0, -0.014244496485486586),
    ('betainc', (5.0, 0.3, 0.999), 1, 1.1496770237646377),
    ('betainc', (100.0, 2.0, 0.5), 0, -2.7492201875092935e-29),
    ('betainc', (100.0, 2.0, 0.5), 1, 1.413761433259294e-28),
    ('betainc', (1.0, 1.0, 0.2), 0, -0.3218875824868201),
    ('betainc', (1.0, 1.0, 0.2), 1, 0.1785148410513678),
    ('betaincc', (3.0, 40.0, 0.6), 0, 9.02873102594434e-14),
    ('stdtr', (3.0, 0.001), 0, 9.732986293627774e-06),
    ('stdtr', (3.0, 0.7), 0, 0.00770667299078443),
    ('stdtr', (3.0, -1000.0), 0, -6.61442096703095e-09),
    ('stdtr', (40.0, 2.0), 0, 8.610839202035744e-05),
    ('stdtr', (1.0, -5.0), 0, -0.09075921535614268),
    ('stdtr', (60.0, -5.0), 0, -7.797809183500543e-08),
    ('zeta', (1.01,), 0, -9999.927281160435),
    ('zeta', (3.0,), 0, -0.19812624288563685),
    ('zeta', (-2.5,), 0, -0.006265736372189758),
    ('zeta', (-7.3,), 0, 0.0023055775627049534),
    ('zeta', (0.5,), 0, -3.9226461392091516),
    ('zeta', (1.5, 0.3), 0, 3.292037761731204),
    ('zeta', (4.0, 100.0), 0, -1.6693388563966024e-06),
    ('ellipk', (-3.0,), 0, 0.07878830166093198),
    ('ellipe', (-3.0,), 0, -0.2239757052311829),
    ('ellipk', (1e-09,), 0, 0.39269908214051064),
    ('ellipe', (1e-09,), 0, -0.3926990818459863),
    ('ellipk', (0.5,), 0, 0.847213084793979),
    ('ellipe', (0.5,), 0, -0.5034307962536965),
    ('ellipk', (0.999999,), 0, 499998.30147144455),
    ('ellipe', (0.999999,), 0, -3.647027430314917),
    ('ellipkinc', (7.0, 0.6), 1, 4.3945050521621525),
    ('ellipeinc', (-5.0, 0.6), 1, 1.8448806294109843),
    ('exprel', (1e-09,), 0, 0.5000000003333334),
    ('exprel', (0.3,), 0, 0.6122092744088647),
    ('exprel', (-40.0,), 0, 0.0006249999999999999),
    ('exprel', (30.0,), 0, 344341958738.01154),
    ('boxcox', (3.0, 1e-09), 1, 0.6034744808482806),
    ('spence', (1.0000001,), 0, -0.9999999500000033),
    ('erfcx', (300.0,), 0, -6.268668673880214e-06),
    ('erfcx', (14.0,), 0, -0.0028567648893957132),
    ('log_ndtr', (-30.0,), 0, 30.033259667433676),
    ('kolmogorov', (0.3,), 0, -0.0008193934196931296),
    ('owens_t', (0.7, 1.3), 0, -0.09948058878641683),
    ('elliprj', (0.2, 1.0, 3.0, 0.5), 3, -1.6669720081722916),
    ('elliprg', (0.2, 1.0, 3.0), 0, 0.2022195126501994),
    ('elliprc', (2.0, 2.0001), 1, -0.1178440595087336),
]
# fmt: on


@pytest.mark.parametrize(("name", "args", "place", "expected"), EXACT, ids=str)
def test_exact(name: str, args: tuple[float, ...], place: int, expected: float) -> None:
    function = getattr(special, name)
    with np.errstate(all="ignore"):
        got = adarray.grad(function, argnums=place)(*args)
    np.testing.assert_allclose(got, expected, rtol=1e-8)


FINITE = [
    ("log_ndtr", (-1e4,), 0, 1e4 + 1e-4),
    ("log_ndtr", (40.0,), 0, 0.0),
    ("logit", (1e-12,), 0, 1e12),
    ("expit", (-800.0,), 0, 0.0),
    ("log_expit", (-800.0,), 0, 1.0),
    ("xlogy", (0.0, 0.0), 0, 0.0),
    ("xlogy", (0.0, 2.0), 0, np.log(2.0)),
    ("xlogy", (0.0, 0.0), 1, 0.0),
    ("rel_entr", (0.0, 2.0), 1, 0.0),
    ("rel_entr", (0.0, 0.0), 1, 0.0),
    ("entr", (0.0,), 0, np.inf),
    ("entr", (-1.0,), 0, 0.0),
    ("erfcx", (1e6,), 0, -1e-12 / np.sqrt(np.pi)),
    ("dawsn", (1e6,), 0, -5e-13),
    ("gammainc", (2.0, 0.0), 1, 0.0),
    ("gammainc", (2.0, 0.0), 0, 0.0),
    ("gammainc", (2.0, np.inf), 0, 0.0),
    ("betainc", (2.0, 3.0, 0.0), 0, 0.0),
    ("betainc", (2.0, 3.0, 1.0), 1, 0.0),
    ("stdtr", (3.0, 0.0), 0, 0.0),
    ("rgamma", (-3.0,), 0, -6.0),
    ("rgamma", (0.0,), 0, 1.0),
    ("binom", (3.0, 5.0), 0, -0.05),
    ("pseudo_huber", (1.0, 0.0), 0, 0.0),
    ("huber", (1.0, 0.0), 1, 0.0),
    ("j1", (0.0,), 0, 0.5),
    ("ellipk", (0.0,), 0, np.pi / 8),
    ("ellipe", (0.0,), 0, -np.pi / 8),
    ("exprel", (0.0,), 0, 0.5),
    ("boxcox", (2.0, 0.0), 1, np.log(2.0) ** 2 / 2),
    ("lambertw", (0.0,), 0, 1.0),
    ("spence", (1.0,), 0, -1.0),
    ("lpmv", (0, 3, 1.0), 2, 6.0),
    ("kl_div", (0.0, 0.0), 1, 1.0),
]


@pytest.mark.parametrize(("name", "args", "place", "expected"), FINITE, ids=str)
def test_ends(name: str, args: tuple[float, ...], place: int, expected: float) -> None:
    """No nan where the derivative exists, at the ends of domains and far out."""
    function = getattr(special, name)
    with np.errstate(all="ignore"):
        got = adarray.grad(lambda *xs: np.real(function(*xs)), argnums=place)(*args)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-17)
