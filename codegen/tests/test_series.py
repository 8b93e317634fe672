import math
import unittest

from codegen.series import CHEBYSHEV, evaluate, for_float32, keeps_digits, polynomial, vector_code
from codegen.special import COEFFICIENTS


class SeriesTest(unittest.TestCase):
    def test_a_polynomial_has_the_same_values(self):
        self.assertEqual(polynomial((1.0, 2.0, 4.0)), [-3.0, 2.0, 8.0])
        for name in CHEBYSHEV:
            c = COEFFICIENTS[name]
            for t in (-1.0, -0.3, 0.0, 0.7, 1.0):
                value = sum(f * t**k for k, f in enumerate(polynomial(c)))
                self.assertAlmostEqual(value, evaluate(c, t), delta=1e-11 * max(map(abs, c)), msg=name)

    def test_float32_leaves_out_what_it_cannot_tell(self):
        for name in CHEBYSHEV:
            c = COEFFICIENTS[name]
            short = for_float32(c)
            self.assertLess(len(short), len(c), name)
            for t in (-1.0, -0.3, 0.0, 0.7, 1.0):
                self.assertLess(abs(evaluate(short, t) - evaluate(c, t)), 2.0**-27 * max(map(abs, c)), name)

    def test_terms_that_cancel_keep_clenshaws_recurrence(self):
        self.assertTrue(keeps_digits((1.0, 0.5, 0.25)))
        self.assertFalse(keeps_digits(tuple(math.cos(k) / (1 + k) for k in range(40))))
        self.assertEqual(vector_code("airy_middle", True)[0], "Clenshaw")
        self.assertEqual(vector_code("i1e_small", True)[0], "Horner")
        self.assertEqual(len(vector_code("i1e_small", False)[1]), len(COEFFICIENTS["i1e_small"]))


if __name__ == "__main__":
    unittest.main()
