//! Distributions of the keys of operations.
//!
//! Zipf follows Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994),
//! as YCSB does, with two differences. The constant zeta(n) uses the actual number of keys (YCSB
//! scrambles with the constant of ten billion items). And a bijection instead of a hash spreads the
//! ranks over the key space, so no two ranks share a key and every key can be drawn.
//!
//! Pareto is the self-similar distribution of the same paper with `h` = 1/5: a fifth of the ranks
//! gets four fifths of the draws, and recursively within that fifth. The rank is a power of a
//! uniform number, the density a power of the rank.

use crate::keys::mix;
use io::Rng;

/// The exponent of the Zipf distribution, as in YCSB.
pub const THETA: f64 = 0.99;

/// The sum of `1 / i^theta` for `i` in `1..=n`: the first terms added up, the rest by the
/// Euler-Maclaurin formula, whose error is far below one unit of the last place used here.
pub fn zeta(n: u64, theta: f64) -> f64 {
    const EXACT: u64 = 10_000;
    let head_end = n.min(EXACT);
    let head: f64 = (1..=head_end).rev().map(|i| (i as f64).powf(-theta)).sum();
    if n <= EXACT {
        return head;
    }
    let (a, b) = (head_end as f64, n as f64);
    let f = |x: f64| x.powf(-theta);
    let slope = |x: f64| -theta * x.powf(-theta - 1.0);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    head + integral + (f(b) - f(a)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

/// A bijection of `0..n`: a four-round Feistel network on the next even number of bits, walked
/// until it lands inside.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    salt: u64,
}

impl Permutation {
    /// Returns a bijection of `0..n` that depends on `seed`.
    pub fn new(n: u64, seed: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Permutation { n, half_bits: bits.div_ceil(2).max(1), salt: mix(seed ^ 0x7065_726d) }
    }

    /// Returns the image of `x`.
    pub fn apply(&self, x: u64) -> u64 {
        assert!(x < self.n, "outside of the permutation");
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = x;
        loop {
            let (mut left, mut right) = (x >> self.half_bits, x & mask);
            for round in 0..4u64 {
                let next = left ^ (mix(right ^ self.salt.wrapping_add(round << 56)) & mask);
                (left, right) = (right, next);
            }
            x = (left << self.half_bits) | right;
            if x < self.n {
                return x;
            }
        }
    }
}

/// Draws key indexes from `0..n`.
#[derive(Clone, Debug)]
pub enum Picker {
    /// Uniform.
    Uniform(u64),
    /// Zipf with exponent [`THETA`].
    Zipf(Box<Zipf>),
    /// Four fifths of the draws to a fifth of the keys, spread by this permutation.
    Pareto(Permutation),
}

/// Share of the ranks of [`Picker::Pareto`] with the remaining draws.
const FEW: f64 = 0.2;

/// Draws a rank of `0..n` by Pareto's law, 0 being the most popular.
fn pareto_rank(n: u64, rng: &mut Rng) -> u64 {
    let exponent = FEW.ln() / (1.0 - FEW).ln();
    ((n as f64 * rng.unit().powf(exponent)) as u64).min(n - 1)
}

/// The constants of Gray's method.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: u64,
    zeta_n: f64,
    alpha: f64,
    eta: f64,
    second: f64,
    spread: Permutation,
}

impl Zipf {
    /// Returns a Zipf distribution over `n` items, spread by a bijection of `seed`.
    pub fn new(n: u64, seed: u64) -> Self {
        let zeta_n = zeta(n, THETA);
        let zeta_2 = zeta(2, THETA);
        let eta = if n <= 2 {
            0.0 // both ranks are drawn before eta is used
        } else {
            (1.0 - (2.0 / n as f64).powf(1.0 - THETA)) / (1.0 - zeta_2 / zeta_n)
        };
        let second = 1.0 + 0.5f64.powf(THETA);
        Zipf { n, zeta_n, alpha: 1.0 / (1.0 - THETA), eta, second, spread: Permutation::new(n, seed) }
    }

    /// Draws a rank, 0 being the most popular.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        let u = rng.unit();
        let uz = u * self.zeta_n;
        if uz < 1.0 || self.n == 1 {
            return 0;
        }
        if uz < self.second || self.n == 2 {
            return 1;
        }
        let rank = self.n as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.n - 1)
    }
}

impl Picker {
    /// Returns a picker over `n` keys.
    pub fn new(distribution: crate::Distribution, n: u64, seed: u64) -> Self {
        match distribution {
            crate::Distribution::Uniform => Picker::Uniform(n),
            crate::Distribution::Zipf => Picker::Zipf(Box::new(Zipf::new(n, seed))),
            crate::Distribution::Pareto => Picker::Pareto(Permutation::new(n, seed)),
        }
    }

    /// Draws the index of the next key.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        self.spread(self.rank(rng))
    }

    /// Draws a rank, 0 being the most popular.
    pub fn rank(&self, rng: &mut Rng) -> u64 {
        match self {
            Picker::Uniform(n) => rng.below(*n),
            Picker::Zipf(zipf) => zipf.rank(rng),
            Picker::Pareto(spread) => pareto_rank(spread.n, rng),
        }
    }

    /// Returns the key index of a rank.
    pub fn spread(&self, rank: u64) -> u64 {
        match self {
            Picker::Uniform(_) => rank,
            Picker::Zipf(zipf) => zipf.spread.apply(rank),
            Picker::Pareto(spread) => spread.apply(rank),
        }
    }
}

#[cfg(test)]
mod tests;
