// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How many standard errors an interval reaches to each side.

/// The value that a normal variable of mean 0 and deviation 1 exceeds with this probability, which
/// is above 0 and at most a half.
///
/// **Source**: the rational approximation of P. J. Acklam, 2003, with a relative error below
/// 1.2e-9.
pub(super) fn normal_upper(probability: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    const TAIL: f64 = 0.024_25;
    let polynomial = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |y, c| y * x + c);
    let p = probability.clamp(f64::MIN_POSITIVE, 0.5);
    if p < TAIL {
        let q = (-2.0 * p.ln()).sqrt();
        -polynomial(&C, q) / polynomial(&D, q)
    } else {
        let q = 0.5 - p;
        let r = q * q;
        polynomial(&A, r) * q / polynomial(&B, r)
    }
}

/// The same for Student's t with at least 10 degrees of freedom.
///
/// **Source**: Abramowitz and Stegun, 26.7.5.
pub(super) fn student_upper(probability: f64, freedom: f64) -> f64 {
    let x = normal_upper(probability);
    let square = x * x;
    let terms = [
        x * (square + 1.0) / 4.0,
        x * ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        x * (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        x * ((((79.0 * square + 776.0) * square + 1_482.0) * square - 1_920.0) * square - 945.0)
            / 92_160.0,
    ];
    let freedom = freedom.max(FEWEST_FREEDOM);
    // From the highest power of 1 / freedom down.
    x + terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom)
}

/// Below, the series is no longer good enough.
const FEWEST_FREEDOM: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t0_quantiles_are_those_of_the_tables() {
        let normal =
            [(0.5, 0.0), (0.025, 1.959_963_985), (0.005, 2.575_829_304), (1e-6, 4.753_424_309)];
        for (p, want) in normal {
            assert!((normal_upper(p) - want).abs() < 1e-7, "{p}: {}", normal_upper(p));
        }
        let student = [
            (0.025, 10.0, 2.228_1),
            (0.005, 10.0, 3.169_3),
            (0.000_5, 20.0, 3.849_5),
            (0.000_5, 60.0, 3.460_2),
            (0.025, 1e9, 1.960_0),
        ];
        for (p, freedom, want) in student {
            let found = student_upper(p, freedom);
            assert!((found / want - 1.0).abs() < 2e-3, "{p}, {freedom}: {found}");
        }
    }
}
