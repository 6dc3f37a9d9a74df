//! Compares a result of the devices with that of the unsharded program.

use crate::tensor::Tensor;

/// How far one result is from what it should be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// Whether they count as equal.
    pub equal: bool,
    /// The largest absolute difference; infinite where one is NaN or infinite and the other is not,
    /// or shapes differ.
    pub max_abs_err: f64,
    /// What differences are measured against
    /// ([`Expected::scale`](crate::reference::Expected::scale)).
    pub scale: f64,
}

/// Compares a result with what it should be, up to `tolerance` times `scale`. Two NaN count as
/// equal, and so do two infinities of one sign.
pub fn compare(result: &Tensor, expected: &Tensor, scale: f64, tolerance: f64) -> Comparison {
    if result.sizes != expected.sizes || result.data.len() != expected.data.len() {
        return Comparison { equal: false, max_abs_err: f64::INFINITY, scale };
    }
    let max_abs_err = result
        .data
        .iter()
        .zip(&expected.data)
        .map(|(a, b)| {
            if a == b || (a.is_nan() && b.is_nan()) {
                0.0
            } else if a.is_finite() && b.is_finite() {
                (a - b).abs()
            } else {
                f64::INFINITY
            }
        })
        .fold(0.0, f64::max);
    Comparison { equal: max_abs_err <= tolerance * scale, max_abs_err, scale }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(data: &[f64]) -> Tensor {
        Tensor { sizes: vec![data.len()], data: data.to_vec() }
    }

    #[test]
    fn equal_means_within_the_tolerance_of_the_scale() {
        assert!(compare(&line(&[1.0, 100.0]), &line(&[1.0005, 100.0]), 100.0, 1e-5).equal);
        assert!(!compare(&line(&[1.0, 100.0]), &line(&[1.002, 100.0]), 100.0, 1e-5).equal);
        assert!(
            compare(
                &line(&[f64::NAN, f64::NEG_INFINITY]),
                &line(&[f64::NAN, f64::NEG_INFINITY]),
                100.0,
                0.0
            )
            .equal
        );
        assert!(!compare(&line(&[f64::NAN]), &line(&[0.0]), 100.0, 1.0).equal);
        assert!(!compare(&line(&[0.0]), &line(&[0.0, 0.0]), 100.0, 1.0).equal);
    }
}
